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

	// Location, for regions named with an airport code.
	Latitude  float64 `json:"latitude,omitempty"`
	Longitude float64 `json:"longitude,omitempty"`
	GeoRegion string  `json:"geo_region,omitempty"`
}

// RegionList is the reply with the regions.
type RegionList struct {
	Regions []Region      `json:"Regions"`
	Nearest bourse.Region `json:"Nearest"` // nearest to the broker: its own region, or otherwise by geography; "" if unknown
}

// Worker describes a worker: its membership, and its own report if it answered.
type Worker struct {
	ID      bourse.WorkerID `json:"id"`
	Region  bourse.Region   `json:"region"`
	Address string          `json:"address"`
	Tag     string          `json:"tag"` // prefix of its machines' IDs
	Leaving bool            `json:"leaving,omitempty"`
	Status  WorkerStatus    `json:"status"`
	Error   string          `json:"error,omitempty"` // why it did not answer
	Facts   *bourse.Facts   `json:"facts,omitempty"` // nil if it did not answer

	// For a worker that is down or stopped.
	Since    time.Time `json:"since,omitzero"`
	Earlier  bool      `json:"earlier,omitempty"`  // since an earlier time, because the broker has not observed the change
	Machines int       `json:"machines,omitempty"` // number of machines when it was last reachable
	Volumes  int       `json:"volumes,omitempty"`
}

// WorkerStatus tells whether a worker is reachable.
type WorkerStatus string

// Statuses of a worker.
const (
	WorkerOK          WorkerStatus = "ok"
	WorkerUnreachable WorkerStatus = "unreachable" // a member that does not answer
	WorkerDown        WorkerStatus = "down"        // no longer a member
	WorkerStopped     WorkerStatus = "stopped"     // no longer a member, after leaving cleanly
)

// WorkerList is the reply with the workers.
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

// RunList is the reply with a worker's runs.
type RunList struct {
	Runs []Run `json:"runs"`
}

// LogLine is one line of a machine's output.
type LogLine struct {
	At     time.Time `json:"at"`
	Stream string    `json:"stream"` // stdout or stderr
	Text   string    `json:"text"`
	// Position identifies the line, for LogQuery.After.
	Position string `json:"position,omitempty"`
	// Error is set only on the last line, if an error ended the stream.
	Error *ErrorBody `json:"error,omitempty"`
}

// Health is the reply to a health check.
type Health struct {
	Status  string `json:"status"` // "ok"
	Version string `json:"version"`
	Workers int    `json:"workers"` // number of workers that the broker knows
}
