package fabric

import (
	"time"

	"github.com/bourse-dev/bourse"
)

// MachinesQuery selects machines: zero fields select all of them.
type MachinesQuery struct {
	App     bourse.AppName `json:"app,omitempty"` // without AppID: of every app that has or had this name
	AppID   string         `json:"app_id,omitempty"`
	Name    string         `json:"name,omitempty"`
	Deleted bool           `json:"deleted,omitempty"` // destroyed ones too
}

// VolumesQuery selects volumes: zero fields select all of them.
type VolumesQuery struct {
	App     bourse.AppName `json:"app,omitempty"` // without AppID: of every app that has or had this name
	AppID   string         `json:"app_id,omitempty"`
	Deleted bool           `json:"deleted,omitempty"` // destroyed ones too
}

// WaitQuery is what to wait for.
type WaitQuery struct {
	Machine  bourse.MachineID  `json:"machine"`
	States   []bourse.State    `json:"states,omitempty"`   // any of them
	Timeout  bourse.Duration   `json:"timeout,omitempty"`  // 0: the worker's default
	Instance bourse.InstanceID `json:"instance,omitempty"` // only while the machine is at this version
	After    bourse.EventID    `json:"after,omitempty"`    // only by an event after this one
}

// EventsQuery selects a machine's latest events.
type EventsQuery struct {
	Machine bourse.MachineID `json:"machine"`
	Limit   int              `json:"limit,omitempty"` // 0: as many as the worker returns by default
}

// LogsQuery selects log lines.
type LogsQuery struct {
	Machine bourse.MachineID `json:"machine"`
	After   string           `json:"after,omitempty"`  // only lines behind the one of this position
	Since   time.Time        `json:"since,omitzero"`   // zero: from the beginning
	Tail    int              `json:"tail,omitempty"`   // the last so many; 0: all, negative: none (with Follow: only new ones)
	Follow  bool             `json:"follow,omitempty"` // go on until the machine is destroyed
}

// RunsQuery selects runs.
type RunsQuery struct {
	Ended bool `json:"ended,omitempty"` // also those that have ended
}
