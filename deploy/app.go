package deploy

import (
	"time"

	"github.com/bourse-dev/bourse"
)

// App is the desired state of an app. It is complete: files have been read and defaults filled in.
type App struct {
	Name    bourse.AppName `json:"app"`
	Primary bourse.Region  `json:"primary_region,omitempty"` // region of the first machines; "": the API chooses one
	Groups  []Group        `json:"groups"`                   // by name

	Strategy       Strategy        `json:"strategy"`
	MaxUnavailable float64         `json:"max_unavailable"` // of a group: a number of machines if at least 1, otherwise a share of them, rounded up
	Wait           bourse.Duration `json:"wait_timeout"`    // for one machine to start, and for its checks to pass
	Reserve        bool            `json:"reserve,omitempty"`
	Command        *Command        `json:"release_command,omitempty"` // run before any machine is changed
}

// Group is a set of machines with the same config.
type Group struct {
	Name string `json:"name"`
	// Config is the config of each machine, without the metadata that plans write, and without the volume of its mount.
	Config bourse.Config `json:"config"`
	// Counts are the numbers of machines by region. If it is nil, existing machines stay, and the default number is made
	// for a group that has none.
	Counts []Count `json:"counts,omitempty"`
	// Spare raises the default number from one to two: another machine that serves or, in a group without services, a
	// standby of the first.
	Spare bool `json:"spare,omitempty"`
	// KeepGuest lets existing machines keep their size, because the configuration sets none.
	KeepGuest bool   `json:"keep_guest,omitempty"`
	Mount     *Mount `json:"mount,omitempty"`
	// Smoke makes a machine fail that exits soon after its start.
	Smoke bool `json:"smoke,omitempty"`
}

// Count is the desired number of a group's machines in one region.
type Count struct {
	Region bourse.Region `json:"region"`
	Count  int           `json:"count"`
}

// Mount describes the volume that each machine of a group mounts.
type Mount struct {
	Volume string `json:"volume"` // the name of all of the group's volumes
	Path   string `json:"path"`
	SizeGB int64  `json:"size_gb"` // of new volumes

	// As in [bourse.Mount]: a volume that is this full grows by AddSizeGB, up to the limit.
	ExtendThresholdPercent int   `json:"extend_threshold_percent,omitempty"`
	AddSizeGB              int64 `json:"add_size_gb,omitempty"`
	SizeGBLimit            int64 `json:"size_gb_limit,omitempty"`

	// Of new volumes, as in a request for a volume; nil: the API's default.
	SnapshotRetention *int  `json:"snapshot_retention,omitempty"`
	AutoBackup        *bool `json:"auto_backup_enabled,omitempty"`
}

// Command is a release command: it runs on a machine of its own and has to exit with status 0.
type Command struct {
	Config  bourse.Config `json:"config"`
	Timeout time.Duration `json:"timeout"`
}

// Strategy determines how the machines of a group are updated.
type Strategy string

// The strategies.
const (
	Rolling   Strategy = "rolling"   // some at a time, each ready before the next
	Immediate Strategy = "immediate" // all at once, without waiting
	Canary    Strategy = "canary"    // an additional machine first, which is destroyed once it was ready; then rolling
	BlueGreen Strategy = "bluegreen" // a new machine for each; once all are ready they serve, and the old ones are destroyed
)
