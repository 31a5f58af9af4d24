"""The configs of tilewire that are worth measuring for a shape on GPUs: a list like that of src/schedules/gpu_*choices.cpp.

Used by bench/peers.py. Needs neither torch nor a GPU.
"""
GROUP_ROWS = 2048  # that stay in the L2 cache while columns of tiles pass
FEWER_ROWS = 512  # walked together where there are many rounds
TILE_K = 64  # columns of A that a step of the kernel takes
PIECES = 16  # of a shard that workers copy, one each; behind few or some rows for all peers together
CUT_ROWS = 176  # most rows of tiles whose K several CTAs may share
LEAST_QUARTER = 256  # rows from which a quarter of a shard is worth a copy of its own
OTHER_SMS = 4  # that have no tile: they copy, sum, wait and post
FEW_WORKERS = OTHER_SMS - 1
MOST_SENT = 512  # rows, of all peers, up to which tiles wait for few workers less than for engines
UNPACED = {"transport": "copy_engine"}  # copies by engines that nothing paces


def middle_tile(rows, cols, sms=132):
    """Tiles of 192 columns, or of 160 where all SMs then end earlier: fewer turns, or turns that are shorter."""
    def time(tile):
        tiles = -(-rows // tile[0]) * -(-cols // tile[1])
        cycles = 256 + 3 * tile[1]  # of a step: what shared memory takes
        return -(-tiles // sms) * cycles
    return min([(128, 192, 1), (128, 160, 1)], key=time)


def size_of_each(extent, tiles):
    """Rows, or columns, of each of so many tiles that cut `extent` without a rest: a multiple of 8."""
    return -(-extent // (8 * tiles)) * 8


def row_of_tiles(kind, m, ranks):
    """Rows of a tile for all rows where they are few, or that has each owner's rows of a gather; else 128."""
    shard = -(-m // ranks) if kind == "ag" else 0
    if m <= 64:
        return 64
    if m <= CUT_ROWS:
        return max(72, size_of_each(m, 1))
    return size_of_each(shard, 1) if 128 < shard <= CUT_ROWS else 128


def tiles_of_owner(m, ranks):
    """Of a gather: the fewest tiles of at most CUT_ROWS rows that cut an owner's rows without a rest."""
    shard = -(-m // ranks)
    if shard <= 128 or m >= 1024:
        return []
    rows = size_of_each(shard, -(-shard // CUT_ROWS))
    return [knobs_of((rows, 128, 1), m)] if rows != 128 else []


def free_tiles(m, cols, ranks, sms=132):
    """Tiles of 128 columns whose rows are free: they cut each owner's rows, or all, without a rest, and SMs end earlier."""
    found = []
    for owners in (ranks, 1):
        rows = -(-m // owners)

        def time(tile_m, tile_n):
            tiles = owners * -(-rows // tile_m) * -(-cols // tile_n)
            return -(-tiles // (sms - OTHER_SMS)) * (256 + 3 * (tile_n if tile_m == 128 else tile_m))

        pieces = range(-(-rows // 248), -(-rows // 64)) if m > 64 else []
        tiles = [size_of_each(rows, each) for each in pieces]
        best = min(time(128, n) for n in (128, 160, 192, 256))
        tiles = [each for each in tiles if each != 128 and time(each, 128) < best]
        if tiles:
            tile = min(tiles, key=lambda each: time(each, 128))
            found += [] if tile in found else [tile]
    return [knobs_of((tile, 128, 1), m) for tile in found]


def tiles_for(rows, cols):
    """(tile_m, tile_n, cluster_m) for so many rows: large where there are many, else as many as keep the SMs busy."""
    if rows <= 64:
        return [(64, 128, 1)]
    middle = middle_tile(rows, cols)
    if rows < 1024:
        return [middle, (128, 128, 1), (128, 256, 2)]
    return [(128, 256, 2), middle, (128, 256, 1)]


def knobs_of(tile, rows):
    tile_m, tile_n, cluster_m = tile
    group_m = {"group_m": GROUP_ROWS // tile_m} if rows > tile_m else {}
    return {"schedule": "fused", "tile_m": tile_m, "tile_n": tile_n, "cluster_m": cluster_m} | group_m


def by_engines(ranks):
    return UNPACED | ({"pacing": "lockstep"} if ranks > 2 else {})


def part_of_shard(m, ranks, parts):
    return -(-(-(-m // ranks)) // parts)  # both round up


def has_quarters(m, ranks):
    return ranks > 1 and part_of_shard(m, ranks, 4) >= LEAST_QUARTER


def in_groups_of_shard(tile, m, ranks, parts):
    """A part of a shard at once, and the tiles of each are made together."""
    rows = part_of_shard(m, ranks, parts)
    return tile | UNPACED | {"chunk_rows": rows, "group_m": max(1, min(tile["group_m"], rows // tile["tile_m"]))}


def shards_together(config, shard):
    """Walks the row tiles of a shard together. Pairs that share B need two of them."""
    group = max(1, shard // config["tile_m"])
    pairs = {"cluster_m": 1, "cluster_n": 2} if group == 1 and config["cluster_m"] == 2 else {}
    return config | {"group_m": group} | pairs


def turns(m, ranks):
    """Other tiles and turns: own tiles for all SMs, then a few columns of every peer; two owners; the largest tile."""
    shard = -(-m // ranks)
    if ranks == 1 or m <= 128 or (ranks == 2 and m < 1024):
        return []
    pair = {"tile_m": 128, "tile_n": 192, "cluster_m": 2, "group_m": GROUP_ROWS // 128}
    large = {"tile_m": 256, "tile_n": 192, "cluster_m": 1, "cluster_n": 2, "group_m": GROUP_ROWS // 256}
    config = {"schedule": "fused"} | (pair if m < 1024 or shard <= 256 else large) | by_engines(ranks)
    if m < 1024:
        config["group_owners"] = 2
    elif shard <= 512:
        config = shards_together(config | {"rounds": 3 if shard <= 256 else 4}, shard)
    return [config]


def columns_of_cut(k, cuts):
    """Columns of A in each of so many cuts: whole steps of the kernel."""
    return -(-k // (cuts * TILE_K)) * TILE_K


def by_workers(tile, m, k, ranks):
    """Copies by workers; few rows: PIECES for all peers at once, half of the columns first."""
    shard = -(-m // ranks)
    if m > 64:
        return [tile | {"transport": "store", "chunk_rows": max(1, -(-shard // PIECES))}]
    pieces = tile | {"transport": "store", "chunk_rows": max(1, -(-shard * (ranks - 1) // PIECES))}
    halves = {"chunk_cols": columns_of_cut(k, 2), "copy_workers": PIECES}
    return [pieces, pieces | halves] if ranks > 1 and halves["chunk_cols"] < k else [pieces]


def pieces(m, ranks):
    """Copies by workers of some rows: PIECES for all peers together; of 33 to 64 rows twice as many."""
    shard = -(-m // ranks)
    rows = shard * max(1, ranks - 1)
    if 2 * PIECES < rows <= 4 * PIECES:
        return {"transport": "store", "chunk_rows": -(-rows // (2 * PIECES)), "copy_workers": 2 * PIECES}
    return {"transport": "store", "chunk_rows": max(1, -(-rows // PIECES))}


def owners_at_once(m, ranks):
    """A row of tiles for each owner: all of them together, so that pairs share B, behind copies by few workers."""
    shard = -(-m // ranks)
    if ranks == 1 or m <= 128 or shard > 128:
        return []
    tile = knobs_of((128, 256, 2), m) | {"group_owners": ranks}
    return [tile | {"transport": "store", "chunk_rows": -(-shard * (ranks - 1) // 8)}]


def parts_of_k(tile_n, m, n, k, ranks, kind):
    """CTAs that share the K of each tile: about all SMs have one, but for some that copy and sum; and one more."""
    sms, beside, least, most = 132, 48, 512, 8
    cols, depth = (-(-n // ranks), k) if kind == "ag" else (n, k // ranks)
    tile_m = row_of_tiles(kind, m, ranks)
    tiles = -(-m // tile_m) * -(-cols // tile_n)
    parts = max(1, (sms - beside) // max(1, tiles))
    parts = {min(each, most, depth // least) for each in (parts, parts + 1)}
    in_turns = lambda each: each if tile_m <= 128 or each < 4 else each // 3 * 3
    return sorted({in_turns(each) for each in parts} - {0, 1})


def in_parts(kind, m, n, k, ranks):
    """Few or some rows: tiles whose K several CTAs share."""
    if m > 512:
        return []
    tile = knobs_of((row_of_tiles(kind, m, ranks), 128, 1), m)
    parts = [tile | {"cluster_split_k": each} for each in parts_of_k(128, m, n, k, ranks, kind)]
    if kind == "ag":
        return [config for each in parts for config in (each | pieces(m, ranks), each | by_engines(ranks))]
    at_once = kind == "ar" and m <= 64
    flags = {"transport": "ll"} | summers(n, 128, kind == "ar" and not at_once)
    flags |= {"algorithm": "one_shot"} if at_once else {}
    rounds = {"rounds": 2} if ranks > 1 and (kind == "rs" or m > tile["tile_m"]) else {}
    configs = [tile | flags] if 64 < m <= 128 else []
    for each in parts:
        configs += [each | {"transport": "tma"} | rounds] if m > 64 or kind == "ar" else []
        configs += [each | flags] if m <= (128 if kind == "rs" else 64) else []
    return configs


def waves_of(tile, m, cols, sms=132):
    """Turns in which the SMs that have tiles take them."""
    return -(-(-(-m // tile[0]) * -(-cols // tile[1])) // (sms - OTHER_SMS))


def fills_waves(tile, m, cols, sms=132):
    """Whether these SMs nearly all have a tile in each turn, and nearly all of it is needed."""
    return 8 * m * cols >= 7 * waves_of(tile, m, cols, sms) * (sms - OTHER_SMS) * tile[0] * tile[1]


def in_step(m, n, k, ranks):
    """Few rows a rank: all tiles begin when a quarter of everybody's columns is here, and share B."""
    shard, quarter = -(-m // ranks), columns_of_cut(k, 4)
    if ranks == 1 or m <= 128 or shard > 256 or quarter >= k:
        return []
    step = {"tile_order": "in_step", "chunk_cols": quarter}
    engines = [knobs_of(tile, m) for tile in (middle_tile(m, -(-n // ranks)), (128, 256, 1))]
    all_rows = lambda tile: tile | (
        {"group_m": max(tile["group_m"], ranks * -(-shard // tile["tile_m"]))} if m > tile["tile_m"] else {})
    configs = [all_rows(tile) | UNPACED | step for tile in engines]
    configs += [all_rows(tile) | pieces(m, ranks) | step for tile in free_tiles_of_gather(m, n, ranks)]
    return configs + few_workers(m, n, k, ranks)


def few_workers(m, n, k, ranks):
    """The largest tiles in step, behind small cuts of columns that the few SMs without a tile send: to all, or to one first."""
    tile, shard = (256, 192, 1), -(-m // ranks)
    owners = 1 if shard * (ranks - 1) <= MOST_SENT else 2
    rows = m if owners == 1 else 2 * shard
    apart = ranks * -(-shard // tile[0]) <= -(-m // tile[0])  # shards have tiles of their own
    if (owners == 2 and not apart) or rows <= tile[0] or not fills_waves(tile, rows, -(-n // ranks)):
        return []
    few = {"transport": "store", "copy_workers": FEW_WORKERS, "chunk_rows": -(-shard // FEW_WORKERS)}
    turns = {"tile_order": "in_step"} | ({"group_owners": owners} if owners > 1 else {})
    return [knobs_of(tile, m) | few | turns | {"chunk_cols": cols}
            for cols in sorted({columns_of_cut(k, cuts) for cuts in (8, 12)}, reverse=True)]


def workers_beside_a_wave(m, n, k, ranks, sms=132):
    """One turn of tiles on most SMs, in step behind quarters of the columns, and workers on PIECES of the others."""
    shard, cols, quarter = -(-m // ranks), -(-n // ranks), columns_of_cut(k, 4)
    if ranks == 1 or m <= 128 or m > 2048 or quarter >= k:
        return []
    for tile_n in (256, 192, 160, 128):
        tiles = -(-m // 128) * -(-cols // tile_n)
        if 4 * tiles >= 3 * sms and tiles <= sms - OTHER_SMS - PIECES:
            few = {"transport": "store", "copy_workers": PIECES, "chunk_rows": -(-shard // PIECES)}
            return [knobs_of((128, tile_n, 1), m) | few | {"tile_order": "in_step", "chunk_cols": quarter}]
    return []


def free_tiles_of_gather(m, n, ranks):
    free = free_tiles(m, -(-n // ranks), ranks)
    return free + [tile for tile in tiles_of_owner(m, ranks) if tile not in free]


def pieces_of_sums(rows, cols, pieces):
    """Pieces of long rows, alike, so many that each of `pieces` workers has one of rows x cols."""
    longest = 1024
    tile_n = size_of_each(cols, -(-cols // longest))
    return {"tile_m": -(-rows // max(1, pieces // -(-cols // tile_n))), "tile_n": tile_n}


def stream_ordered(kind, m, n, ranks):
    """Few or some rows: cuBLASLt's GEMM between kernels of one stream that copy, or that sum what peers have made."""
    sms, least, shard = 132 - OTHER_SMS, 4096, -(-m // ranks)
    if ranks == 1 or m > (4096 if kind == "ag" and ranks > 2 else 1023):
        return []
    config = {"schedule": "sequential", "compute": "library"}
    if kind == "ag":
        workers = sms // 2
        rows = shard if shard >= workers else shard * (ranks - 1)  # peer after peer; few rows: all peers at once
        return [config | {"copy_workers": workers, "chunk_rows": -(-rows // workers)}]
    rows, pieces = (shard, sms) if kind == "rs" else (m, sms * ranks)
    configs = [config | {"reduce_mode": "pull", "reduce_workers": sms} | pieces_of_sums(rows, n, pieces)]
    if kind == "ar" and n % (8 * ranks) == 0:  # the call stores each owner's columns there
        cols = n // ranks
        pieces = min(sms, -(-m * cols // least))  # of so many elements as are worth a worker
        configs.append(config | {"schedule": "fused", "reduce_workers": sms} | pieces_of_sums(m, cols, pieces))
    return configs


def gather(m, n, k, ranks):
    tiles = [knobs_of(tile, m) for tile in tiles_for(m, -(-n // ranks))]
    engines = by_engines(ranks)
    configs = [knobs | engines for knobs in tiles]
    configs += turns(m, ranks)
    if has_quarters(m, ranks):
        configs += [in_groups_of_shard(tiles[0], m, ranks, parts) for parts in (4, 2)]
        halves = {"cluster_m": 1, "group_m": max(1, tiles[0].get("group_m", 1) // 2), "chunk_cols": columns_of_cut(k, 2)}
        configs += [tiles[0] | UNPACED | halves] if halves["chunk_cols"] < k else []
    elif ranks > 1 and m >= 1024:
        configs += [shards_together(tiles[0] | engines | {"rounds": 4}, -(-m // ranks))]
    configs += by_workers(tiles[0], m, k, ranks)
    if ranks > 2 and 1024 <= m <= 4096:  # smaller tiles end sooner behind the last rows
        configs += by_workers(tiles[1], m, k, ranks)
    configs += in_parts("ag", m, n, k, ranks)
    configs += owners_at_once(m, ranks)
    free = free_tiles_of_gather(m, n, ranks)
    configs += [tile | engines for tile in free] + [tile | pieces(m, ranks) for tile in free if m < 1024]
    configs += in_step(m, n, k, ranks) + workers_beside_a_wave(m, n, k, ranks) + stream_ordered("ag", m, n, ranks)
    if m >= 1024:
        configs.append({"schedule": "fused", "compute": "library"} | engines)
    return configs


def summers(n, tile_n, lands):
    """Few rows: a CTA for sums on every SM that tiles leave free, but for some that only wait and post; where results
    of others land, half of them."""
    sms, others = 132, 2
    return {"reduce_workers": min(64, max(16, (sms - -(-n // tile_n) - others) // (2 if lands else 1)))}


def together(m, n, ranks):
    """Some rows: tiles of all owners together, so that B is read once."""
    if ranks == 1 or m <= 128 or m >= 1024:
        return []
    tiles = [(128, 128, 1), (128, 256, 1)] + ([(256, 192, 1)] if -(-m // ranks) >= 256 else [])
    return [tile | {"transport": "tma", "group_owners": ranks}
            for tile in [knobs_of(tile, m) for tile in tiles] + free_tiles(m, n, ranks) if tile["tile_m"] < m]


def sums_soon(k, ranks, tile):
    """Whether parts that are made in a turn are summed during the next one."""
    steps, chunks = -(-k // ranks) // TILE_K, -(-tile[0] // 128) * -(-tile[1] // 64)
    return ranks <= 4 and steps >= 20 * chunks + 8


def some_rounds(m, n, k, ranks, tile):
    """Two rounds; or, where parts are summed soon, whole turns."""
    turns = waves_of(tile, m, n)
    return 3 if sums_soon(k, ranks, tile) and turns % 2 and turns % 3 == 0 else 2


def with_rounds(config, kind, ranks, rounds):
    """Many rounds of a reduce-scatter over several peers walk fewer rows together: a turn reads less of A."""
    few = rounds >= 16 and kind == "rs" and ranks > 2
    return config | ({"group_m": max(1, FEWER_ROWS // config["tile_m"])} if few else {}) | {"rounds": rounds}


def reduction(kind, m, n, k, ranks):
    shapes = tiles_for(m, n)
    tiles = [knobs_of(tile, m) for tile in shapes]
    configs = [knobs | {"transport": "tma"} for knobs in tiles]
    at_once = {"transport": "ll"} | summers(n, tiles[0]["tile_n"], kind == "ar")
    configs.append(configs[0] | (at_once if m <= 64 else {"rounds": some_rounds(m, n, k, ranks, shapes[0])}))
    pair = (128, 192 if m < 1024 else middle_tile(m, n)[1], 2)
    if -(-m // ranks) > 128 and (m < 1024 or (m <= 4096 and pair[1] == 160)) and ranks > 1:
        configs.append(knobs_of(pair, m) | {"transport": "tma"})
    if m >= 4096:
        configs += [with_rounds(configs[0], kind, ranks, rounds) for rounds in (4, 32)]
    elif kind == "ar" and m >= 1024 and 3 < waves_of(shapes[0], m, n) <= 8:
        configs.append(configs[0] | {"rounds": waves_of(shapes[0], m, n)})
    elif kind == "rs" and m >= 1024 and ranks > 2 and sums_soon(k, ranks, shapes[0]):
        configs.append(configs[0] | {"rounds": 8})
    if kind == "rs" and ranks > 2 and m >= 8192:  # each tile adds to what the rank before has sent
        ring = configs[0] | {"algorithm": "ring"}
        configs += [ring, with_rounds(ring, kind, ranks, 16)]
    if kind == "ar" and m <= 64:
        configs.append(configs[-1] | {"algorithm": "one_shot"} | summers(n, tiles[0]["tile_n"], False))
    configs += in_parts(kind, m, n, k, ranks)
    for tile in free_tiles(m, n, ranks):
        configs += [tile | {"transport": "tma"}] + ([tile | {"transport": "tma", "rounds": 2}] if ranks > 1 else [])
    configs += together(m, n, ranks) + stream_ordered(kind, m, n, ranks)
    if 128 < m <= 4096 and ranks > 2:
        configs.append(tiles[0] | {"transport": "tma", "group_owners": ranks - 1})
        if m < 1024:
            configs.append(configs[-1] | {"tile_m": 128, "tile_n": 192, "cluster_m": 1, "cluster_n": 2})
    if kind == "ar" and m > 64 and ranks > 1:
        configs.append(knobs_of((128, 128, 2), m) | {"transport": "tma", "rounds": 2})
    if kind == "rs" and has_quarters(m, ranks):
        configs += [in_groups_of_shard(tiles[0], m, ranks, 4),
                    tiles[0] | UNPACED | {"chunk_rows": part_of_shard(m, ranks, 2)}]
    return configs


def candidates(kind, m, n, k, ranks):
    """Configs for "ag", "rs" or "ar" of `m` rows, `n` columns and depth `k`, over all ranks."""
    return gather(m, n, k, ranks) if kind == "ag" else reduction(kind, m, n, k, ranks)


def name_of(config):
    """A config in a few words: its knobs, or "auto"."""
    if isinstance(config, str):
        return config
    return " ".join(f"{knob}={value}" for knob, value in config.items())
