package view

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
)

// Listed is a machine as its worker told of it last, and how much that is
// worth now. Its lease has no nonce, and it has its newest events only.
type Listed struct {
	bourse.Machine
	HostStatus string    // HostOK, HostUnreachable or HostUnknown
	HeardAt    time.Time // when its worker was last heard; zero: never
}

// Filter says which machines are meant: those that agree with all that is set.
type Filter struct {
	ID     bourse.MachineID
	App    bourse.AppName
	Worker bourse.WorkerID
	Region bourse.Region
	Name   string
}

// Machines lists machines by the time they were made, then by id.
func (v *View) Machines(ctx context.Context, f Filter) ([]Listed, error) {
	var list []Listed
	err := v.read(ctx, func(c *sqlite.Conn) (err error) {
		list, err = readMachines(c, f)
		return err
	})
	return list, err
}

// Machine gives one machine; false when the view has none of this id.
func (v *View) Machine(ctx context.Context, id bourse.MachineID) (Listed, bool, error) {
	if id == "" { // which would mean any
		return Listed{}, false, nil
	}
	list, err := v.Machines(ctx, Filter{ID: id})
	if err != nil || len(list) == 0 {
		return Listed{}, false, err
	}
	return list[0], true, nil
}

// CountMachines counts the machines of every app that has any.
func (v *View) CountMachines(ctx context.Context) (map[bourse.AppRef]int, error) {
	counts := map[bourse.AppRef]int{}
	err := v.read(ctx, func(c *sqlite.Conn) error {
		clear(counts)
		return query(c, countMachinesSQL, func(s *sqlite.Stmt) error {
			counts[bourse.AppRef{Name: bourse.AppName(s.ColumnText(0)), ID: s.ColumnText(1)}] = s.ColumnInt(2)
			return nil
		})
	})
	return counts, err
}

const countMachinesSQL = `SELECT app, app_id, count(*) FROM machine_rows GROUP BY app, app_id`

// machinesSQL gives the statement for a filter and its arguments. What narrows
// most leads to an index; the conditions that have one too carry a plus, so
// that SQLite does not choose theirs instead.
func machinesSQL(f Filter) (string, []any) {
	var where []string
	var args []any
	for _, c := range []struct{ column, value string }{
		{"r.key", string(f.ID)}, {"r.app", string(f.App)}, {"r.site", string(f.Worker)}, {"r.region", string(f.Region)}, {"r.name", f.Name},
	} {
		if c.value == "" {
			continue
		}
		if len(where) > 0 && c.column != "r.region" {
			c.column = "+" + c.column
		}
		where, args = append(where, c.column+" = ?"), append(args, c.value)
	}
	if len(where) == 0 {
		where = []string{"TRUE"}
	}
	return machinesFrom + strings.Join(where, " AND "), args
}

const machinesFrom = `SELECT ` + machineColumns + `, ` + hostColumns + ` FROM machine_rows AS r LEFT JOIN sites AS s ON s.site = r.site WHERE `

func readMachines(c *sqlite.Conn, f Filter) ([]Listed, error) {
	sql, args := machinesSQL(f)
	var list []Listed
	var r cells
	err := query(c, sql, func(s *sqlite.Stmt) error {
		r.Stmt = s
		list = append(list, Listed{})
		l := &list[len(list)-1]
		next := readMachine(&r, &l.Machine)
		l.HostStatus, l.HeardAt = readHost(&r, next)
		if l.ID.Validate() != nil { // its owner names it so that nobody could ask for it
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
