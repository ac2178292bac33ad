package machinesapi

import "github.com/bourse-dev/bourse"

// PlacementRequest is the body of a request for the regions that have capacity. Clients also send weights and a volume
// name, which are ignored.
type PlacementRequest struct {
	Org         string        `json:"org_slug"`
	Region      string        `json:"region,omitempty"`            // a region expression; default: the broker's own region, then any
	Count       uint64        `json:"count,omitempty"`             // number of machines; 0: as many as fit
	Compute     *bourse.Guest `json:"compute,omitempty"`           // default performance-1x
	VolumeBytes uint64        `json:"volume_size_bytes,omitempty"` // size of the volume that each machine needs
}

// PlacementList is the reply to a PlacementRequest. It contains the regions that have capacity, in
// order of preference. The capitalized field names are those of the Machines API.
type PlacementList struct {
	Regions []RegionPlacement `json:"Regions"`
}

// RegionPlacement describes how many machines fit into a region.
type RegionPlacement struct {
	Region      bourse.Region `json:"Region"`
	Count       int64         `json:"Count"`
	Concurrency int64         `json:"Concurrency"` // number of workers with capacity, at most Count
}
