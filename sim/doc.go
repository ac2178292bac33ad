// Package sim is Bourse's placement lab. It replays traces on simulated workers, in one process
// and in virtual time, to compare Bourse's placement with that of published schedulers.
//
// The lab runs production code for everything that Bourse supports: admit.Ledger checks that
// nothing is oversold, and market.Rank ranks quotes with its curves. Traces contain shares of GPUs
// and lists of acceptable GPU models, which Bourse does not support. The lab models them: a
// worker's ledger counts thousandths of GPUs, and the lab also tracks how much of each GPU is free
// (cluster.go).
//
// There are two kinds of experiments. An inflation experiment (inflation.go) places one order after
// another, with perfect information, as the paper on fragmentation gradient descent does. A market
// experiment (events.go) adds delayed and lost messages, outdated views, concurrent brokers, slow
// workers, and workers that die.
//
// The results are a function of the trace, the policy and the seed.
package sim
