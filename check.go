package bourse

import "time"

// CheckState is what a health check has found.
type CheckState string

// The states of checks, in the words of the Machines API.
const (
	CheckPassing  CheckState = "passing"
	CheckWarning  CheckState = "warning"  // not known yet, or the machine does not run
	CheckCritical CheckState = "critical" // the last probe failed
)

// CheckStatus is the status of one check of a machine.
type CheckStatus struct {
	Name      string     `json:"name"`
	Status    CheckState `json:"status"`
	Output    string     `json:"output"`     // what the probe found, a short text
	UpdatedAt time.Time  `json:"updated_at"` // when the status became what it is
}

// CheckResults are what the checks of one start of a machine have found.
type CheckResults struct {
	Boot    int           `json:"boot"` // [Boot.Number] of that start
	Results []CheckStatus `json:"results"`
}
