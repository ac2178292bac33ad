package machinesapi

import (
	"time"

	"github.com/bourse-dev/bourse"
)

// ViewHealth describes the members' copies of the view.
type ViewHealth struct {
	Agrees  bool           `json:"agrees"`  // no member is behind, unreachable, or different from the others
	Members []MemberHealth `json:"members"` // sorted by role, region and ID
}

// MemberHealth contains a member's report about its copy of the view, and the result of comparing that copy with other
// members' copies.
type MemberHealth struct {
	ID        bourse.WorkerID `json:"id"`
	Role      bourse.Role     `json:"role"`
	Region    bourse.Region   `json:"region,omitempty"`
	Reachable bool            `json:"reachable"`
	Error     string          `json:"error,omitempty"` // why the member is unreachable, or cannot write its copy
	DownSince time.Time       `json:"down_since,omitzero"`

	// The following fields are the member's own report. They are zero if the member is unreachable.
	Version    string         `json:"version,omitempty"` // version of the program
	Epoch      uint64         `json:"epoch"`             // current epoch of the member's own stream
	Streams    int            `json:"streams"`           // number of streams that the member follows; each stream is one epoch of a site
	Heads      []ViewHead     `json:"heads,omitempty"`   // the member's position in each stream
	Queue      ViewQueue      `json:"queue"`
	Quarantine ViewQuarantine `json:"quarantine"`
	Tables     []ViewTable    `json:"tables"` // sorted by name

	ViewLag // comparison with the other members, set by CompareViews
}

// ViewLag is the result of comparing a member's copy with the other members' copies.
type ViewLag struct {
	State   ViewState `json:"state"`
	Gaps    int       `json:"gaps"`              // number of streams in which transactions are missing
	Behind  uint64    `json:"behind"`            // number of transactions that other members have but this member lacks
	LagMS   int64     `json:"lag_ms"`            // lower bound on how long a transaction has been missing
	Differs []string  `json:"differs,omitempty"` // names of the tables that differ from most members' tables
}

// ViewState is the state of a member's copy.
type ViewState string

// States of a copy, from best to worst.
const (
	ViewOK          ViewState = "ok"          // the copy contains all transactions
	ViewCatchingUp  ViewState = "catching up" // changes are still being delivered, as is normal in a busy cluster
	ViewBehind      ViewState = "behind"      // changes have been missing for longer than normal
	ViewDiffers     ViewState = "differs"     // the copy contains all transactions but different rows, which is a bug
	ViewUnreachable ViewState = "unreachable"
	ViewDown        ViewState = "down" // the server should be a member, but is not
)

// ViewHead is a member's position in one stream.
type ViewHead struct {
	Site  bourse.WorkerID `json:"site"`
	Epoch uint64          `json:"epoch"`
	Seq   uint64          `json:"seq"`
	// At is when the site wrote the latest transaction that the member has, according to the site's
	// clock.
	At time.Time `json:"at,omitzero"`
}

// ViewQueue describes the transactions that a member has received but not yet applied.
type ViewQueue struct {
	Transactions int    `json:"transactions"`
	Bytes        int64  `json:"bytes"`
	Dropped      uint64 `json:"dropped"` // number of transactions dropped since startup because the queue was full; they are fetched again
}

// ViewQuarantine describes rows that a member has rejected.
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
	Checksum string `json:"checksum"` // hexadecimal; copies with the same rows have the same checksum
}
