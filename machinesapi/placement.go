package machinesapi

import "github.com/bourse-dev/bourse"

// PlacementRequest is the body of a request for regions with capacity. Clients also send weights and a volume's name,
// which are ignored.
type PlacementRequest struct {
	Org         string        `json:"org_slug"`
	Region      string        `json:"region,omitempty"`            // an expression; default: the broker's own region, then any
	Count       uint64        `json:"count,omitempty"`             // 0: as many as fit
	Compute     *bourse.Guest `json:"compute,omitempty"`           // default performance-1x
	VolumeBytes uint64        `json:"volume_size_bytes,omitempty"` // size of each machine's volume
}

// PlacementList is the reply: the regions with capacity, in order of preference. The Machines API uses these
// capitalized names.
type PlacementList struct {
	Regions []RegionPlacement `json:"Regions"`
}

// RegionPlacement is the number of machines that fit into a region.
type RegionPlacement struct {
	Region      bourse.Region `json:"Region"`
	Count       int64         `json:"Count"`
	Concurrency int64         `json:"Concurrency"` // number of workers
}
