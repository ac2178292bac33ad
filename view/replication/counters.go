package replication

import "sync/atomic"

// counters contains a Replicator's event counters, which begin at zero at startup.
type counters struct {
	rumorBytesIn, rumorBytesOut atomic.Uint64
	httpBytesIn, httpBytesOut   atomic.Uint64 // bytes of request and response bodies, both as client and as server
	taken, duplicates           atomic.Uint64
	gaps, announced             atomic.Uint64
	compared, pulled, snapshots atomic.Uint64
	malformed, forged           atomic.Uint64
	otherVersion, otherCluster  atomic.Uint64
	shed                        atomic.Uint64
}

// Traffic contains a Replicator's counters since startup, and the current lengths of its queues.
type Traffic struct {
	RumorBytesIn  uint64 `json:"rumor_bytes_in"`
	RumorBytesOut uint64 `json:"rumor_bytes_out"`
	HTTPBytesIn   uint64 `json:"http_bytes_in"` // bytes of request and response bodies
	HTTPBytesOut  uint64 `json:"http_bytes_out"`
	Taken         uint64 `json:"taken"`      // new transactions received
	Duplicates    uint64 `json:"duplicates"` // transactions received more than once
	Gaps          uint64 `json:"gaps"`       // transactions that could not be applied at once, because earlier ones or the birth certificate were missing
	Announced     uint64 `json:"announced"`  // announcements received
	Compared      uint64 `json:"compared"`   // comparisons with other members
	Pulled        uint64 `json:"pulled"`     // transactions received in response to pulls
	Snapshots     uint64 `json:"snapshots"`  // snapshots applied
	Refused       struct {
		Malformed    uint64 `json:"malformed"`
		Forged       uint64 `json:"forged"` // transactions that were not signed by the site that they name
		OtherVersion uint64 `json:"other_version"`
		OtherCluster uint64 `json:"other_cluster"`
		Shed         uint64 `json:"shed"` // requests refused with status 429
	} `json:"refused"`
	Queue struct {
		Rumors        int    `json:"rumors"`
		Bytes         int    `json:"bytes"`
		Announcements int    `json:"announcements"`
		Demoted       uint64 `json:"demoted"` // transactions that were announced instead of being sent in full, for lack of space
		Dropped       uint64 `json:"dropped"` // announcements dropped for lack of space
		Wanted        int    `json:"wanted"`  // streams that have to be pulled
	} `json:"queue"`
}

// Traffic returns the current counters.
func (r *Replicator) Traffic() Traffic {
	c := r.count
	t := Traffic{
		RumorBytesIn: c.rumorBytesIn.Load(), RumorBytesOut: c.rumorBytesOut.Load(),
		HTTPBytesIn: c.httpBytesIn.Load(), HTTPBytesOut: c.httpBytesOut.Load(),
		Taken: c.taken.Load(), Duplicates: c.duplicates.Load(), Gaps: c.gaps.Load(), Announced: c.announced.Load(),
		Compared: c.compared.Load(), Pulled: c.pulled.Load(), Snapshots: c.snapshots.Load(),
	}
	t.Refused.Malformed, t.Refused.OtherVersion = c.malformed.Load(), c.otherVersion.Load()
	t.Refused.Forged = c.forged.Load()
	t.Refused.OtherCluster, t.Refused.Shed = c.otherCluster.Load(), c.shed.Load()
	t.Queue.Rumors, t.Queue.Bytes, t.Queue.Announcements = r.queue.lengths()
	t.Queue.Demoted, t.Queue.Dropped = r.queue.losses()
	t.Queue.Wanted = r.wants.length()
	return t
}
