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

// MemberHealth is one member's report about its copy of the view, and a comparison of that copy
// with those of other members.
type MemberHealth struct {
	ID        bourse.WorkerID `json:"id"`
	Role      bourse.Role     `json:"role"`
	Region    bourse.Region   `json:"region,omitempty"`
	Reachable bool            `json:"reachable"`
	Error     string          `json:"error,omitempty"` // why the member is unreachable, or cannot write its copy
	DownSince time.Time       `json:"down_since,omitzero"`

	// The member's own report. All fields are zero if the member is unreachable.
	Version    string         `json:"version,omitempty"` // version of the program
	Epoch      uint64         `json:"epoch"`             // current epoch of the member's own stream
	Streams    int            `json:"streams"`           // number of streams that the member follows; each is an epoch of a site
	Heads      []ViewHead     `json:"heads,omitempty"`   // the member's position in each stream
	Queue      ViewQueue      `json:"queue"`
	Quarantine ViewQuarantine `json:"quarantine"`
	Tables     []ViewTable    `json:"tables"` // sorted by name

	Standing // comparison with the other members, set by CompareViews
}

// Standing contains the result of comparing a member's copy with those of the others.
type Standing struct {
	State   ViewState `json:"state"`
	Gaps    int       `json:"gaps"`              // number of streams of which transactions are missing
	Behind  uint64    `json:"behind"`            // number of transactions that this member lacks and another member has
	LagMS   int64     `json:"lag_ms"`            // how long a transaction has been missing; a lower bound
	Differs []string  `json:"differs,omitempty"` // names of the tables that differ from those of most members
}

// ViewState is the state of a member's copy.
type ViewState string

// States of a copy, from good to bad.
const (
	ViewOK          ViewState = "ok"          // the copy contains all transactions
	ViewCatchingUp  ViewState = "catching up" // changes are still on their way, as always in a busy cluster
	ViewBehind      ViewState = "behind"      // changes have been missing for longer than they normally take
	ViewDiffers     ViewState = "differs"     // the copy contains all transactions but different rows, which is a bug
	ViewUnreachable ViewState = "unreachable"
	ViewDown        ViewState = "down" // the server should be a member, but is not
)

// ViewHead is a member's position in one stream.
type ViewHead struct {
	Site  bourse.WorkerID `json:"site"`
	Epoch uint64          `json:"epoch"`
	Seq   uint64          `json:"seq"`
	At    time.Time       `json:"at,omitzero"` // when the site wrote the last transaction, by the site's own clock
}

// ViewQueue describes the transactions that a member has received but not applied yet.
type ViewQueue struct {
	Transactions int    `json:"transactions"`
	Bytes        int64  `json:"bytes"`
	Dropped      uint64 `json:"dropped"` // number of transactions dropped since startup for lack of space; they are fetched again
}

// ViewQuarantine describes the rows that a member has rejected.
type ViewQuarantine struct {
	Rows   int              `json:"rows"`
	Newest []QuarantinedRow `json:"newest,omitempty"` // at most the 20 newest rows
}

// QuarantinedRow is a row that a member has rejected, with its origin.
type QuarantinedRow struct {
	Site   bourse.WorkerID `json:"site"` // the site that wrote the row
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
	Checksum string `json:"checksum"` // hexadecimal; equal for copies with equal rows
}
