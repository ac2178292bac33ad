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

// Listed is a machine as its worker published it last, and how much that is
// worth now. Its lease has no nonce, and it has its newest events only.
type Listed struct {
	bourse.Machine
	HostStatus machinesapi.HostStatus // of its worker
	HeardAt    time.Time              // when its worker was last heard; zero: never
	Whole      bool                   // false in the view: set by readers whom the worker itself replied all of its config
}

// Filter says which machines are meant: those that agree with all that is set.
type Filter struct {
	ID     bourse.MachineID
	App    bourse.AppName
	Worker bourse.WorkerID
	Region bourse.Region
	Name   string
}

// Machines asks for machines, by the time they were made, then by id.
func Machines(f Filter) func(*sqlite.Conn) ([]Listed, error) {
	return func(c *sqlite.Conn) ([]Listed, error) { return readMachines(c, f) }
}

// Machine asks for one machine; nil when there is none of this id.
func Machine(id bourse.MachineID) func(*sqlite.Conn) (*Listed, error) {
	return func(c *sqlite.Conn) (*Listed, error) {
		if id == "" { // which would mean any
			return nil, nil
		}
		list, err := readMachines(c, Filter{ID: id})
		if err != nil || len(list) == 0 {
			return nil, err
		}
		return &list[0], nil
	}
}

// CountMachines asks how many machines each app has, of those that have any.
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

// machinesSQL returns the statement for a filter and its arguments.
func machinesSQL(f Filter) (string, []any) {
	return filtered(machinesFrom,
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
		if l.ID.Validate() != nil || f.App != "" && l.App == "" { // no one could ask for it, or it only claims to be the app's
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
	return settleOwners(c, list, func(l *Listed) claimant { return claimant{string(l.ID), l.Worker, l.ID.Tag()} })
}
