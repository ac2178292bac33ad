package machinesapi

import (
	"time"

	"github.com/bourse-dev/bourse"
)

// ViewHealth is how the copies of the view are, member by member.
type ViewHealth struct {
	Agrees  bool           `json:"agrees"`  // no member is behind, differs or cannot be reached
	Members []MemberHealth `json:"members"` // by role, region and id
}

// MemberHealth is one member's report of its copy, and how that compares with
// the others'.
type MemberHealth struct {
	ID        bourse.WorkerID `json:"id"`
	Role      bourse.Role     `json:"role"`
	Region    bourse.Region   `json:"region,omitempty"`
	Reachable bool            `json:"reachable"`
	Error     string          `json:"error,omitempty"` // why it is not reachable, or cannot write its copy
	DownSince time.Time       `json:"down_since,omitzero"`

	// Its own report. All zero when it is not reachable.
	Version    string         `json:"version,omitempty"` // its release
	Epoch      uint64         `json:"epoch"`             // its current epoch
	Streams    int            `json:"streams"`           // that it follows: epochs of sites
	Heads      []ViewHead     `json:"heads,omitempty"`   // how far it is in each
	Queue      ViewQueue      `json:"queue"`
	Quarantine ViewQuarantine `json:"quarantine"`
	Tables     []ViewTable    `json:"tables"` // by name

	Standing // compared with the others: CompareViews fills it
}

// Standing is how a member's copy compares with the others'.
type Standing struct {
	State   ViewState `json:"state"`
	Gaps    int       `json:"gaps"`              // streams of which it lacks transactions
	Behind  uint64    `json:"behind"`            // transactions that another member has and it lacks
	LagMS   int64     `json:"lag_ms"`            // for how long it has lacked one, at least
	Differs []string  `json:"differs,omitempty"` // tables that differ from most members'
}

// ViewState is what a member's copy is worth.
type ViewState string

// The states, from good to bad.
const (
	ViewOK          ViewState = "ok"          // it has everything that anybody has
	ViewCatchingUp  ViewState = "catching up" // changes are in flight, as they always are in a busy cluster
	ViewBehind      ViewState = "behind"      // for longer than changes take
	ViewDiffers     ViewState = "differs"     // it has every transaction, and yet other rows: a fault
	ViewUnreachable ViewState = "unreachable"
	ViewDown        ViewState = "down" // it should be a member and is gone
)

// ViewHead is how far a member is in one stream.
type ViewHead struct {
	Site  bourse.WorkerID `json:"site"`
	Epoch uint64          `json:"epoch"`
	Seq   uint64          `json:"seq"`
	At    time.Time       `json:"at,omitzero"` // when the site wrote that transaction, by its clock
}

// ViewQueue is what a member has received and not yet taken in.
type ViewQueue struct {
	Transactions int    `json:"transactions"`
	Bytes        int64  `json:"bytes"`
	Dropped      uint64 `json:"dropped"` // since its start, for lack of space; they are fetched again
}

// ViewQuarantine is what a member has refused to apply.
type ViewQuarantine struct {
	Rows   int              `json:"rows"`
	Newest []QuarantinedRow `json:"newest,omitempty"` // at most 20
}

// QuarantinedRow is one row that was not taken in, with its origin.
type QuarantinedRow struct {
	Site   bourse.WorkerID `json:"site"` // who wrote it
	Epoch  uint64          `json:"epoch"`
	Seq    uint64          `json:"seq"`
	Table  string          `json:"table"`
	Key    string          `json:"key"`
	Reason string          `json:"reason"`
	Since  time.Time       `json:"since,omitzero"`
}

// ViewTable is what a member has of one table.
type ViewTable struct {
	Name     string `json:"name"`
	Rows     int64  `json:"rows"`
	Checksum string `json:"checksum"` // hexadecimal; equal where the rows are
}
