package inventory

import (
	"cmp"
	"slices"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/view/schema"
)

// Listed is a machine as last published by its worker, together with the worker's status. It does
// not include the lease's nonce or older events.
type Listed struct {
	bourse.Machine
	HostStatus machinesapi.HostStatus // the worker's status
	HeardAt    time.Time              // time when the worker was last reachable; zero if it never was
	Complete   bool                   // whether the config is complete; true if the machine comes from the worker itself, false if it comes from the view
}

// Filter selects the machines that match all fields that are set.
type Filter struct {
	ID     bourse.MachineID
	App    bourse.AppName
	Worker bourse.WorkerID
	Region bourse.Region
	Name   string
}

// Machines returns a query for the machines that match a filter, sorted by creation time, then by
// ID.
func Machines(f Filter) func(*sqlite.Conn) ([]Listed, error) {
	return func(c *sqlite.Conn) ([]Listed, error) { return readMachines(c, f) }
}

// Machine returns a query for the machine with this ID. Its result is nil if there is none.
func Machine(id bourse.MachineID) func(*sqlite.Conn) (*Listed, error) {
	return func(c *sqlite.Conn) (*Listed, error) {
		if id == "" { // a filter with an empty ID would match all machines
			return nil, nil
		}
		list, err := readMachines(c, Filter{ID: id})
		if err != nil || len(list) == 0 {
			return nil, err
		}
		return &list[0], nil
	}
}

// CountMachines returns a query for the number of machines in each app. It omits apps without
// machines.
func CountMachines() func(*sqlite.Conn) (map[bourse.AppRef]int, error) {
	return func(c *sqlite.Conn) (map[bourse.AppRef]int, error) {
		counts := map[bourse.AppRef]int{}
		err := schema.Query(c, countMachinesSQL, func(s *sqlite.Stmt) error {
			counts[bourse.AppRef{Name: bourse.AppName(s.ColumnText(0)), ID: s.ColumnText(1)}] = s.ColumnInt(2)
			return nil
		})
		return counts, err
	}
}

const countMachinesSQL = `SELECT app, app_id, count(*) FROM machine_rows WHERE placed GROUP BY app, app_id`

// machinesSQL returns the statement for a filter, and its arguments.
func machinesSQL(f Filter) (string, []any) {
	return where(machinesFrom,
		condition{"r.key", string(f.ID)}, condition{"r.app", string(f.App)}, condition{"r.site", string(f.Worker)},
		condition{"r.region", string(f.Region)}, condition{"r.name", f.Name})
}

const machinesFrom = `SELECT ` + machineColumns + `, ` + hostColumns + ` FROM machine_rows AS r LEFT JOIN sites AS s ON s.site = r.site WHERE `

func readMachines(c *sqlite.Conn, f Filter) ([]Listed, error) {
	sql, args := machinesSQL(f)
	var list []Listed
	var r cells
	err := schema.Query(c, sql, func(s *sqlite.Stmt) error {
		r.Stmt = s
		list = append(list, Listed{})
		l := &list[len(list)-1]
		next := readMachine(&r, &l.Machine)
		l.HostStatus, l.HeardAt = readHost(&r, next)
		if l.ID.Validate() != nil || f.App != "" && l.App == "" { // skip a machine whose ID is invalid, or that no broker has placed in the app
			list = list[:len(list)-1]
		}
		return nil
	}, args...)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(list, func(a, b Listed) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Worker, b.Worker))
	})
	return removeDuplicates(c, list, func(l *Listed) idClaim { return idClaim{string(l.ID), l.Worker, l.ID.Tag()} })
}
