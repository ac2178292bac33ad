package deploy

import (
	"time"

	"github.com/bourse-dev/bourse"
)

// App is the desired state of an app. All files that the app's configuration refers to
// have been read, and all defaults are filled in.
type App struct {
	Name    bourse.AppName `json:"app"`
	Primary bourse.Region  `json:"primary_region,omitempty"` // region of the first machines; "" means that the API chooses one
	Groups  []Group        `json:"groups"`                   // sorted by name

	Strategy Strategy `json:"strategy"`
	// MaxUnavailable limits how many machines of each group may be unavailable at a time. A value of at least 1 is a
	// number of machines. A smaller value is a fraction of the group's machines, rounded up. 0 means 0.33.
	MaxUnavailable float64         `json:"max_unavailable"`
	Wait           bourse.Duration `json:"wait_timeout"` // time limit for each machine to start and for its checks to pass
	Reserve        bool            `json:"reserve,omitempty"`
	Command        *Command        `json:"release_command,omitempty"` // release command, run before any machine is changed
}

// Group is a set of machines with the same config.
type Group struct {
	Name string `json:"name"`
	// Config is the config of each machine. It contains neither the metadata that plans set nor the ID of the mounted
	// volume.
	Config bourse.Config `json:"config"`
	// Counts contains the desired number of machines in each region. If Counts is nil, a group keeps its existing
	// machines, and a group without machines gets the default number.
	Counts []Count `json:"counts,omitempty"`
	// Spare raises the default number of machines from one to two. If the group has services, the second machine also
	// serves; otherwise, it is a standby for the first.
	Spare bool `json:"spare,omitempty"`
	// KeepGuest preserves the size of existing machines. It is set if the configuration does not specify a machine
	// size.
	KeepGuest bool   `json:"keep_guest,omitempty"`
	Mount     *Mount `json:"mount,omitempty"`
	// Smoke makes a deploy fail if a machine exits soon after it starts.
	Smoke bool `json:"smoke,omitempty"`
}

// Count is the desired number of a group's machines in one region.
type Count struct {
	Region bourse.Region `json:"region"`
	Count  int           `json:"count"`
}

// Mount describes the volume that each machine of a group mounts.
type Mount struct {
	Volume string `json:"volume"` // name shared by all of the group's volumes
	Path   string `json:"path"`
	SizeGB int64  `json:"size_gb"` // size of new volumes

	// Settings for automatic growth, as in [bourse.Mount]: when a volume is ExtendThresholdPercent full, it grows by
	// AddSizeGB, up to SizeGBLimit.
	ExtendThresholdPercent int   `json:"extend_threshold_percent,omitempty"`
	AddSizeGB              int64 `json:"add_size_gb,omitempty"`
	SizeGBLimit            int64 `json:"size_gb_limit,omitempty"`

	// Settings for new volumes. nil means the API's default.
	SnapshotRetention *int  `json:"snapshot_retention,omitempty"`
	AutoBackup        *bool `json:"auto_backup_enabled,omitempty"`
}

// Command is a release command, which runs on its own machine and must exit with status 0.
type Command struct {
	Config  bourse.Config `json:"config"`
	Timeout time.Duration `json:"timeout"`
}

// Strategy determines the order in which a group's machines are updated.
type Strategy string

// Strategies for deploys.
const (
	Rolling   Strategy = "rolling"   // a few machines at a time; each must be ready before the next is changed
	Immediate Strategy = "immediate" // all machines at once, without waiting
	Canary    Strategy = "canary"    // like Rolling, but first tests the new config with an additional machine
	// BlueGreen creates a replacement for each machine. Once all replacements are ready, they start serving, and the
	// old machines are destroyed.
	BlueGreen Strategy = "bluegreen"
)
