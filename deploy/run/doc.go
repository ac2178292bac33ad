// Package run carries out plans. It knows steps and what must have ended before
// each begins; strategies, releases and terminals it does not.
//
// [Run] holds the lease of every machine that its plan names for as long as it works,
// and begins nothing on a machine whose lease it has lost. It waits for facts: that a
// machine has started and its checks pass, that a proxy has heard. Requests that got no answer
// are repeated for a while, in such a way that they take effect once; those that were
// refused are not.
//
// When a step fails or the context ends, no step begins any more, those in progress
// end, and what was done is undone in reverse order, each step once all that stood on it
// are. What the failed machine wrote last is read before that.
//
// Run starts one goroutine for each step that is in progress, one for the news of the view
// and one for the leases; all have ended when it returns. One mutex guards what they share, and is not
// held while a request or a callback is in progress; events have a lock of their own, so that they
// come one at a time.
package run
