package machinesapi

import (
	"time"

	"github.com/bourse-dev/bourse"
)

// ViewHealth describes the members' copies of the view.
type ViewHealth struct {
	Agrees  bool           `json:"agrees"`  // no member is behind, different or unreachable
	Members []MemberHealth `json:"members"` // sorted by role, region and ID
}

// MemberHealth is one member's report about its copy, and a comparison with the others.
type MemberHealth struct {
	ID        bourse.WorkerID `json:"id"`
	Role      bourse.Role     `json:"role"`
	Region    bourse.Region   `json:"region,omitempty"`
	Reachable bool            `json:"reachable"`
	Error     string          `json:"error,omitempty"` // why it is unreachable, or cannot write its copy
	DownSince time.Time       `json:"down_since,omitzero"`

	// Its own report. All fields are zero if it is unreachable.
	Version    string         `json:"version,omitempty"` // version of the program
	Epoch      uint64         `json:"epoch"`             // its current epoch
	Streams    int            `json:"streams"`           // number of streams that it follows, that is, epochs of sites
	Heads      []ViewHead     `json:"heads,omitempty"`   // its position in each stream
	Queue      ViewQueue      `json:"queue"`
	Quarantine ViewQuarantine `json:"quarantine"`
	Tables     []ViewTable    `json:"tables"` // sorted by name

	Standing // comparison with the others, set by CompareViews
}

// Standing compares a member's copy with the others'.
type Standing struct {
	State   ViewState `json:"state"`
	Gaps    int       `json:"gaps"`              // number of streams with missing transactions
	Behind  uint64    `json:"behind"`            // number of transactions that another member has and this one lacks
	LagMS   int64     `json:"lag_ms"`            // for how long it has lacked one, as a lower bound
	Differs []string  `json:"differs,omitempty"` // tables that differ from most members'
}

// ViewState is the state of a member's copy.
type ViewState string

// States, from good to bad.
const (
	ViewOK          ViewState = "ok"          // it has all transactions
	ViewCatchingUp  ViewState = "catching up" // changes are in transit, as always in a busy cluster
	ViewBehind      ViewState = "behind"      // changes have been missing for longer than they normally take
	ViewDiffers     ViewState = "differs"     // it has all transactions but different rows, which is a bug
	ViewUnreachable ViewState = "unreachable"
	ViewDown        ViewState = "down" // it should be a member but is not
)

// ViewHead is a member's position in one stream.
type ViewHead struct {
	Site  bourse.WorkerID `json:"site"`
	Epoch uint64          `json:"epoch"`
	Seq   uint64          `json:"seq"`
	At    time.Time       `json:"at,omitzero"` // when the site wrote that transaction, by its own clock
}

// ViewQueue describes the transactions that a member has received but not yet applied.
type ViewQueue struct {
	Transactions int    `json:"transactions"`
	Bytes        int64  `json:"bytes"`
	Dropped      uint64 `json:"dropped"` // since startup, for lack of space; they are fetched again
}

// ViewQuarantine describes the rows that a member has rejected.
type ViewQuarantine struct {
	Rows   int              `json:"rows"`
	Newest []QuarantinedRow `json:"newest,omitempty"` // at most 20
}

// QuarantinedRow is a rejected row with its origin.
type QuarantinedRow struct {
	Site   bourse.WorkerID `json:"site"` // the site that wrote it
	Epoch  uint64          `json:"epoch"`
	Seq    uint64          `json:"seq"`
	Table  string          `json:"table"`
	Key    string          `json:"key"`
	Reason string          `json:"reason"`
	Since  time.Time       `json:"since,omitzero"`
}

// ViewTable describes a member's copy of one table.
type ViewTable struct {
	Name     string `json:"name"`
	Rows     int64  `json:"rows"`
	Checksum string `json:"checksum"` // hexadecimal; equal if the rows are equal
}
