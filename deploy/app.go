package deploy

import (
	"time"

	"github.com/bourse-dev/bourse"
)

// App is what an app is to be, with nothing left to look up: its files are read,
// its defaults filled in.
type App struct {
	Name    bourse.AppName `json:"app"`
	Primary bourse.Region  `json:"primary_region,omitempty"` // where the first machines go; "": the API's choice
	Groups  []Group        `json:"groups"`                   // by name

	Strategy       Strategy        `json:"strategy"`
	MaxUnavailable float64         `json:"max_unavailable"` // of a group: from 1 on so many machines, below it that share of them, rounded up
	Wait           bourse.Duration `json:"wait_timeout"`    // for one machine to start, and for its checks to pass
	Reserve        bool            `json:"reserve,omitempty"`
	Command        *Command        `json:"release_command,omitempty"` // run before any machine is changed
}

// Group is a set of machines that are alike.
type Group struct {
	Name string `json:"name"`
	// Config is of each of them, without the metadata that plans write and without
	// the volume of its mount.
	Config bourse.Config `json:"config"`
	// Counts says how many there are to be, and where. It is nil where nobody said: then
	// those that are there stay, and of a group that has none the first deploy makes its
	// default number.
	Counts []Count `json:"counts,omitempty"`
	// Spare says that a second machine is made where nobody said a count: another that
	// serves, or one that stands by for the first in a group without services.
	Spare bool `json:"spare,omitempty"`
	// KeepGuest says that machines that are there keep their size: the configuration has none.
	KeepGuest bool   `json:"keep_guest,omitempty"`
	Mount     *Mount `json:"mount,omitempty"`
	// Smoke says that a machine that has ended soon after its start has failed.
	Smoke bool `json:"smoke,omitempty"`
}

// Count is how many machines of a group there are to be in one region.
type Count struct {
	Region bourse.Region `json:"region"`
	Count  int           `json:"count"`
}

// Mount is the volume that each machine of a group has.
type Mount struct {
	Volume string `json:"volume"` // the name that they share
	Path   string `json:"path"`
	SizeGB int64  `json:"size_gb"` // of one that has to be made

	// As in [bourse.Mount]: a volume that is so full grows by AddSizeGB, up to the limit.
	ExtendThresholdPercent int   `json:"extend_threshold_percent,omitempty"`
	AddSizeGB              int64 `json:"add_size_gb,omitempty"`
	SizeGBLimit            int64 `json:"size_gb_limit,omitempty"`

	// As in a request for a volume, of one that has to be made; nil: its default.
	SnapshotRetention *int  `json:"snapshot_retention,omitempty"`
	AutoBackup        *bool `json:"auto_backup_enabled,omitempty"`
}

// Command is what runs to its end, with status 0, on a machine of its own.
type Command struct {
	Config  bourse.Config `json:"config"`
	Timeout time.Duration `json:"timeout"`
}

// Strategy says in which order the machines of a group are replaced.
type Strategy string

// The strategies.
const (
	Rolling   Strategy = "rolling"   // some at a time, each ready before the next
	Immediate Strategy = "immediate" // all at once, without waiting for any
	Canary    Strategy = "canary"    // one more first, which goes again when it was ready; then rolling
	BlueGreen Strategy = "bluegreen" // a new one beside each; when all are ready they serve, and the former go
)
