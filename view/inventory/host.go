package inventory

import (
	"time"

	"github.com/bourse-dev/bourse/machinesapi"
)

// hostColumns are those that readHost takes, of sites as s in a left join.
const hostColumns = `s.alive, s.heard_at`

// readHost returns whether a row's site is heard from, and when the site was last heard: zero for
// never.
func readHost(r *cells, first int) (machinesapi.HostStatus, time.Time) {
	switch {
	case r.ColumnIsNull(first):
		return machinesapi.HostUnknown, time.Time{}
	case r.ColumnBool(first):
		return machinesapi.HostOK, r.time(first + 1)
	}
	return machinesapi.HostUnreachable, r.time(first + 1)
}
