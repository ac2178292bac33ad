package inventory

import (
	"time"

	"github.com/bourse-dev/bourse/machinesapi"
)

// hostColumns lists the columns that readHost reads. The statement must LEFT JOIN the table sites as s.
const hostColumns = `s.alive, s.heard_at`

// readHost returns the status of a row's site, and the time when the site was last reachable (zero if it never was).
// first is the index of the first of the hostColumns in the result.
func readHost(r *cells, first int) (machinesapi.HostStatus, time.Time) {
	switch {
	case r.ColumnIsNull(first):
		return machinesapi.HostUnknown, time.Time{}
	case r.ColumnBool(first):
		return machinesapi.HostOK, r.time(first + 1)
	}
	return machinesapi.HostUnreachable, r.time(first + 1)
}
