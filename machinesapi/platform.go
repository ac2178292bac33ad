package machinesapi

import (
	"time"

	"github.com/bourse-dev/bourse"
)

// Region is one region of the exchange.
type Region struct {
	Code    bourse.Region `json:"code"`
	Name    string        `json:"name"`
	Workers int           `json:"workers"`

	// Of regions that are named after an airport.
	Latitude  float64 `json:"latitude,omitempty"`
	Longitude float64 `json:"longitude,omitempty"`
	GeoRegion string  `json:"geo_region,omitempty"`
}

// RegionList is the reply of the regions call.
type RegionList struct {
	Regions []Region      `json:"Regions"`
	Nearest bourse.Region `json:"Nearest"` // to the broker: its own, or else by geography; "" when that is not known
}

// Worker is what the exchange knows of one worker: as a member, and from
// itself when it answered.
type Worker struct {
	ID      bourse.WorkerID `json:"id"`
	Region  bourse.Region   `json:"region"`
	Address string          `json:"address"`
	Tag     string          `json:"tag"` // how its machines' ids begin
	Leaving bool            `json:"leaving,omitempty"`
	Status  WorkerStatus    `json:"status"`
	Error   string          `json:"error,omitempty"` // why it did not answer
	Facts   *bourse.Facts   `json:"facts,omitempty"` // nil unless it answered

	// Of a worker that is down or stopped.
	Since    time.Time `json:"since,omitzero"`
	Earlier  bool      `json:"earlier,omitempty"`  // since before that: the broker has not seen it go
	Machines int       `json:"machines,omitempty"` // that it had when it was last heard from
	Volumes  int       `json:"volumes,omitempty"`
}

// WorkerStatus is whether a worker answered.
type WorkerStatus string

// The statuses of a worker.
const (
	WorkerOK          WorkerStatus = "ok"
	WorkerUnreachable WorkerStatus = "unreachable" // a member, and does not answer
	WorkerDown        WorkerStatus = "down"        // was a member, and is gone
	WorkerStopped     WorkerStatus = "stopped"     // was a member, and has left in good order
)

// WorkerList is the reply of the workers call.
type WorkerList struct {
	Workers []Worker `json:"workers"`
}

// Run is a worker's durable run.
type Run struct {
	ID         string    `json:"id"`
	Definition string    `json:"definition"`
	Resource   string    `json:"resource"`
	Status     string    `json:"status"`
	Step       string    `json:"step,omitempty"`
	Attempt    int       `json:"attempt,omitempty"`
	NotBefore  time.Time `json:"not_before,omitzero"`
	Error      string    `json:"error,omitempty"`
	CreatedAt  time.Time `json:"created_at"`
	UpdatedAt  time.Time `json:"updated_at"`
}

// RunList is the reply of a worker's runs call.
type RunList struct {
	Runs []Run `json:"runs"`
}

// LogLine is one line of a machine's output.
type LogLine struct {
	At     time.Time `json:"at"`
	Stream string    `json:"stream"` // stdout or stderr
	Text   string    `json:"text"`
	// Position names the line, for LogQuery.After.
	Position string `json:"position,omitempty"`
	// Error is set on a last line: why the stream broke off.
	Error *ErrorBody `json:"error,omitempty"`
}

// Health is the reply of the health call.
type Health struct {
	Status  string `json:"status"` // "ok"
	Version string `json:"version"`
	Workers int    `json:"workers"` // that the broker knows
}
