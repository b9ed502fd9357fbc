"use strict";
// Bytes and times of one decode step of one new token per sequence, from the numbers that the planner wrote beside this
// script. Formulas: variants/contract/cost.py and experiments/planning/predict.py; nothing here looks at the page.

function entries(context, window) {
  return window === null ? context : Math.min(context, window);
}

function sequenceBytes(streams, context) {
  return streams.kept.reduce((sum, [bytes, window]) => sum + bytes * entries(context, window), 0);
}

// What attending reads and computes: the cache, q and o once; products over cached tokens (MLA's decompression).
function attendWork(rank, streams, at) {
  const { batch, context } = at;
  const seen = entries(context, streams.seen);
  return {
    bytes:
      batch * sequenceBytes(streams, context) +
      rank.element_bytes * (batch * rank.width + rank.cached_weights),
    flops: 2 * batch * (seen * rank.width + context * rank.cached_weights),
  };
}

// What a step does besides: projections with their weights, the append, x in and y out.
function otherWork(rank, streams, at) {
  const appended = streams.kept.reduce((sum, [bytes]) => sum + bytes, 0);
  return {
    bytes: rank.element_bytes * (rank.weights + 2 * at.batch * rank.hidden) + at.batch * appended,
    flops: 2 * at.batch * rank.weights,
  };
}

function roofline(plan, device, work, readGbps = device.read_gbps, share = device.matmul_share) {
  const memory = work.bytes / (readGbps * plan.gbps);
  const compute = work.flops / (device.peak_tflops * share * plan.tflops);
  return { us: Math.max(memory, compute), bound: memory >= compute ? "memory" : "compute" };
}

function attendUs(plan, device, rank, streams, at) {
  const kernel = device.kernels[rank.kernel];
  const work = attendWork(rank, streams, at);
  const walked = Math.max(...streams.kept.map(([, window]) => entries(at.context, window)));
  const merged = kernel.merge_us * Math.log2(1 + walked / plan.merge_tokens);
  const tile = (kernel.tile_us * Math.min(rank.rows, plan.tile_rows)) / plan.tile_rows;
  const reached = roofline(plan, device, work, kernel.read_gbps, kernel.matmul_share);
  const us = kernel.fixed_us + tile + merged + reached.us;
  return Math.max(us, roofline(plan, device, work).us);
}

function stepTime(plan, device, rank, streams, at) {
  const attend = attendWork(rank, streams, at);
  const other = otherWork(rank, streams, at);
  const whole = { bytes: attend.bytes + other.bytes, flops: attend.flops + other.flops };
  const floor = roofline(plan, device, whole);
  const besides = device.launch_us * rank.launches + roofline(plan, device, other).us;
  const us = attendUs(plan, device, rank, streams, at) + besides;
  return { us: Math.max(us, floor.us), bound: floor.bound };
}

// Sequences that fit on tp devices beside the weights; null where the weights are not known, 0 where they do not fit.
function sequencesThatFit(model, memory, tp, bytesPerSequence) {
  if (model.weight_bytes === null) return null;
  const room = memory - Math.ceil(model.weight_bytes / tp);
  return Math.max(0, Math.floor(room / bytesPerSequence));
}

// One variant at one point: numbers, or the reason why it cannot be there.
function plannedRow(plan, model, variant, device, at) {
  const rank = variant.ranks[at.tp];
  if (rank.reason) return { name: variant.name, reason: rank.reason };
  const streams = rank.streams[at.kv];
  if (streams.reason) return { name: variant.name, reason: streams.reason };
  const perSequence = model.layers * sequenceBytes(streams, at.context);
  const step = stepTime(plan, device, rank, streams, at);
  return {
    name: variant.name,
    token: streams.kept.reduce((sum, [bytes]) => sum + bytes, 0),
    sequence: perSequence,
    fit: sequencesThatFit(model, at.memory, at.tp, perSequence),
    attend: attendUs(plan, device, rank, streams, at),
    step: step.us,
    bound: step.bound,
    limited: device.kernels[rank.kernel].limited,
    model: (model.layers * step.us) / 1000,
  };
}
