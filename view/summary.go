package view

import (
	"context"
	"maps"
	"slices"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
)

// RegionSummary is what one region needs to know of another to decide where an
// order or a request goes. It is computed from rows here; with a second tier
// it would be all that crosses regions, and the rows would stay at home.
type RegionSummary struct {
	Region  bourse.Region
	Workers int                    // that are heard from and take orders; what is free is theirs
	Free    bourse.Amounts         // coarse; of all together
	Largest bourse.Amounts         // coarse; of each resource the most that one worker has free
	Apps    map[bourse.AppName]int // machines there, by app
}

// AppRegions turns summaries round: the regions, in order, in which an app has
// machines.
func AppRegions(list []RegionSummary) map[bourse.AppName][]bourse.Region {
	out := map[bourse.AppName][]bourse.Region{}
	for _, s := range list {
		for app := range s.Apps {
			out[app] = append(out[app], s.Region)
		}
	}
	for _, regions := range out {
		slices.Sort(regions)
	}
	return out
}

// Summary sums the view up by region, in order. It counts every machine: not
// for every request.
func (v *View) Summary(ctx context.Context) ([]RegionSummary, error) {
	var list []RegionSummary
	err := v.read(ctx, func(c *sqlite.Conn) (err error) {
		list, err = readSummary(c)
		return err
	})
	return list, err
}

const appsOfRegionsSQL = `SELECT region, app, count(*) FROM machine_rows GROUP BY app, region`

func readSummary(c *sqlite.Conn) ([]RegionSummary, error) {
	workers, err := readWorkers(c)
	if err != nil {
		return nil, err
	}
	regions := map[bourse.Region]*RegionSummary{}
	in := func(r bourse.Region) *RegionSummary {
		if regions[r] == nil {
			regions[r] = &RegionSummary{Region: r, Apps: map[bourse.AppName]int{}}
		}
		return regions[r]
	}
	for i := range workers {
		if w := &workers[i]; w.Region.Validate() == nil {
			in(w.Region).add(w)
		}
	}
	err = query(c, appsOfRegionsSQL, func(s *sqlite.Stmt) error {
		if r := bourse.Region(s.ColumnText(0)); r.Validate() == nil {
			in(r).Apps[bourse.AppName(s.ColumnText(1))] = s.ColumnInt(2)
		}
		return nil
	})
	list := make([]RegionSummary, 0, len(regions))
	for _, r := range slices.Sorted(maps.Keys(regions)) {
		s := regions[r]
		s.Free, s.Largest = s.Free.Sorted(), s.Largest.Sorted()
		list = append(list, *s)
	}
	return list, err
}

// add takes a worker into its region's sums, unless no order would get there.
func (s *RegionSummary) add(w *WorkerHint) {
	if w.Leaving || w.HostStatus == HostUnreachable {
		return
	}
	s.Workers++
	for _, a := range w.Free {
		s.Free = s.Free.Plus(a)
		if have := s.Largest.Of(a.Resource); have < a.Amount || !s.Largest.Has(a.Resource) {
			s.Largest = s.Largest.Plus(bourse.Amount{Resource: a.Resource, Amount: a.Amount - have})
		}
	}
}
