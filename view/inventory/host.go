package inventory

import "time"

// What a HostStatus says of a row's site, in the Machines API's words.
const (
	HostOK          = "ok"
	HostUnreachable = "unreachable" // silent: what is known of it may be out of date
	HostUnknown     = "unknown"     // not heard of yet, only its rows
)

// hostColumns are those that readHost takes, of sites as s in a left join.
const hostColumns = `s.alive, s.heard_at`

// readHost returns a HostStatus, and when the site was last heard: zero for
// never.
func readHost(r *cells, first int) (string, time.Time) {
	switch {
	case r.ColumnIsNull(first):
		return HostUnknown, time.Time{}
	case r.ColumnBool(first):
		return HostOK, r.time(first + 1)
	}
	return HostUnreachable, r.time(first + 1)
}
