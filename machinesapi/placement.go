package machinesapi

import "github.com/bourse-dev/bourse"

// PlacementRequest is the body of a question where machines would find room.
// Clients send weights and the name of a volume too, which change nothing.
type PlacementRequest struct {
	Org         string        `json:"org_slug"`
	Region      string        `json:"region,omitempty"`            // an expression; default the broker's own, then any
	Count       uint64        `json:"count,omitempty"`             // 0: as many as there is room for
	Compute     *bourse.Guest `json:"compute,omitempty"`           // default performance-1x
	VolumeBytes uint64        `json:"volume_size_bytes,omitempty"` // each machine with a volume of this size
}

// PlacementList is the reply: the regions that have room, in order of preference.
// Its members have no names of their own in the Machines API.
type PlacementList struct {
	Regions []RegionPlacement `json:"Regions"`
}

// RegionPlacement is how many machines would be in a region.
type RegionPlacement struct {
	Region      bourse.Region `json:"Region"`
	Count       int64         `json:"Count"`
	Concurrency int64         `json:"Concurrency"` // on how many workers
}
