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

	// The following fields contain the region's location. They are set only if the region's name is a known airport
	// code.
	Latitude  float64 `json:"latitude,omitempty"`
	Longitude float64 `json:"longitude,omitempty"`
	GeoRegion string  `json:"geo_region,omitempty"`
}

// RegionList is the reply to a request for the regions.
type RegionList struct {
	Regions []Region      `json:"Regions"`
	Nearest bourse.Region `json:"Nearest"` // the broker's own region or, if it has no workers, the nearest region by distance; "" if unknown
}

// Worker describes a worker. It contains data from the cluster's membership and, if the worker
// answered, the worker's own report.
type Worker struct {
	ID      bourse.WorkerID `json:"id"`
	Region  bourse.Region   `json:"region"`
	Address string          `json:"address"`
	Tag     string          `json:"tag"` // prefix of the IDs of the worker's machines
	Leaving bool            `json:"leaving,omitempty"`
	Status  WorkerStatus    `json:"status"`
	Error   string          `json:"error,omitempty"` // why the worker did not answer
	Facts   *bourse.Facts   `json:"facts,omitempty"` // the worker's own report; nil if it did not answer

	// The following fields are set only if the worker is down or stopped.
	Since    time.Time `json:"since,omitzero"`
	Earlier  bool      `json:"earlier,omitempty"`  // the worker was already absent before Since
	Machines int       `json:"machines,omitempty"` // number of machines when the worker was last reachable
	Volumes  int       `json:"volumes,omitempty"`
}

// WorkerStatus describes whether a worker is reachable.
type WorkerStatus string

// Statuses of a worker.
const (
	WorkerOK          WorkerStatus = "ok"
	WorkerUnreachable WorkerStatus = "unreachable" // the worker is a member, but does not answer
	WorkerDown        WorkerStatus = "down"        // the worker is no longer a member
	WorkerStopped     WorkerStatus = "stopped"     // the worker has left cleanly, and is no longer a member
)

// WorkerList is the reply to a request for the workers.
type WorkerList struct {
	Workers []Worker `json:"workers"`
}

// Member is a server of the cluster.
type Member struct {
	ID      bourse.WorkerID `json:"id"`
	Role    bourse.Role     `json:"role,omitempty"`
	Region  bourse.Region   `json:"region,omitempty"`
	Address string          `json:"address,omitempty"`
	Status  MemberStatus    `json:"status"`

	// The following fields are set only if the server is not running.
	Since    time.Time `json:"since,omitzero"`     // when the server was last reachable, if known, or when it was removed
	Machines int       `json:"machines,omitempty"` // number of machines when the server was last reachable
	Volumes  int       `json:"volumes,omitempty"`
}

// MemberStatus describes whether a server participates in the cluster.
type MemberStatus string

// Statuses of a member.
const (
	MemberOK MemberStatus = "ok"
	// MemberDown means that the server was killed or is unreachable. For a broker or proxy, it may
	// also mean that the server left cleanly.
	MemberDown    MemberStatus = "down"
	MemberStopped MemberStatus = "stopped" // the worker has left cleanly
	MemberRemoved MemberStatus = "removed" // an operator has removed the server
)

// MemberList is the reply to a request for the members.
type MemberList struct {
	Members []Member `json:"members"`
}

// Run describes one execution of a state machine on a worker (see package fsm).
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

// RunList is the reply to a request for a worker's runs.
type RunList struct {
	Runs []Run `json:"runs"`
}

// LogLine is one line of a machine's output.
type LogLine struct {
	At     time.Time `json:"at"`
	Stream string    `json:"stream"` // stdout or stderr
	Text   string    `json:"text"`
	// Position identifies the line; see LogQuery.After.
	Position string `json:"position,omitempty"`
	// Error is set only on the last line of a stream, if the stream ended with an error.
	Error *ErrorBody `json:"error,omitempty"`
}

// Health is the reply to a health check.
type Health struct {
	Status  string `json:"status"` // always "ok"
	Version string `json:"version"`
	Workers int    `json:"workers"` // number of workers that the broker knows of
}
