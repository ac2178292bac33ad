package replication

import "sync/atomic"

// counters count since the start.
type counters struct {
	rumourBytesIn, rumourBytesOut atomic.Uint64
	httpBytesIn, httpBytesOut     atomic.Uint64 // of bodies, of requests that we made and that we served
	taken, duplicates             atomic.Uint64
	gaps, announced               atomic.Uint64
	compared, pulled, snapshots   atomic.Uint64
	malformed, forged             atomic.Uint64
	otherVersion, otherCluster    atomic.Uint64
	shed                          atomic.Uint64
}

// Traffic is what a Replicator has done since its start.
type Traffic struct {
	RumourBytesIn  uint64 `json:"rumour_bytes_in"`
	RumourBytesOut uint64 `json:"rumour_bytes_out"`
	HTTPBytesIn    uint64 `json:"http_bytes_in"` // bodies only
	HTTPBytesOut   uint64 `json:"http_bytes_out"`
	Taken          uint64 `json:"taken"`      // transactions that were new
	Duplicates     uint64 `json:"duplicates"` // and that were not
	Gaps           uint64 `json:"gaps"`       // that came before others which they follow
	Announced      uint64 `json:"announced"`  // announcements received
	Compared       uint64 `json:"compared"`   // exchanges with other members
	Pulled         uint64 `json:"pulled"`     // transactions that were asked for
	Snapshots      uint64 `json:"snapshots"`  // taken in
	Refused        struct {
		Malformed    uint64 `json:"malformed"`
		Forged       uint64 `json:"forged"` // not of the site that they claimed to be of
		OtherVersion uint64 `json:"other_version"`
		OtherCluster uint64 `json:"other_cluster"`
		Shed         uint64 `json:"shed"` // requests answered with 429
	} `json:"refused"`
	Queue struct {
		Rumours       int    `json:"rumours"`
		Bytes         int    `json:"bytes"`
		Announcements int    `json:"announcements"`
		Demoted       uint64 `json:"demoted"` // rumours sent by position only, for lack of space
		Dropped       uint64 `json:"dropped"` // announcements, for lack of space
		Wanted        int    `json:"wanted"`  // streams about to be pulled
	} `json:"queue"`
}

// Traffic returns what was done.
func (r *Replicator) Traffic() Traffic {
	c := r.count
	t := Traffic{
		RumourBytesIn: c.rumourBytesIn.Load(), RumourBytesOut: c.rumourBytesOut.Load(),
		HTTPBytesIn: c.httpBytesIn.Load(), HTTPBytesOut: c.httpBytesOut.Load(),
		Taken: c.taken.Load(), Duplicates: c.duplicates.Load(), Gaps: c.gaps.Load(), Announced: c.announced.Load(),
		Compared: c.compared.Load(), Pulled: c.pulled.Load(), Snapshots: c.snapshots.Load(),
	}
	t.Refused.Malformed, t.Refused.OtherVersion = c.malformed.Load(), c.otherVersion.Load()
	t.Refused.Forged = c.forged.Load()
	t.Refused.OtherCluster, t.Refused.Shed = c.otherCluster.Load(), c.shed.Load()
	t.Queue.Rumours, t.Queue.Bytes, t.Queue.Announcements = r.queue.lengths()
	t.Queue.Demoted, t.Queue.Dropped = r.queue.losses()
	t.Queue.Wanted = r.wants.length()
	return t
}
