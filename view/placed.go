package view

import (
	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/schema"
	"github.com/bourse-dev/bourse/view/wire"
)

// placed reports whether a broker's signed placement confirms the app that a machine's or volume's
// row names. It does not check this server's own rows, which other members check.
func (b *batch) placed(r *wire.Version) bool {
	if b.verifier.Placements == nil || r.Site == b.self.Site {
		return true
	}
	signed, _ := r.Columns.Get("placement").([]byte)
	switch r.Table {
	case wire.TableMachines:
		p, err := b.verifier.Placements.Verify(signed)
		return err == nil && p.Places(&bourse.Machine{
			Order: textOf[bourse.OrderID](r, "order_id"), App: textOf[bourse.AppName](r, "app"), AppID: textOf[string](r, "app_id"), Worker: r.Site,
		})
	case wire.TableVolumes:
		p, err := b.verifier.Placements.Verify(signed)
		return err == nil && p.PlacesVolume(&bourse.Volume{
			Order: textOf[bourse.OrderID](r, "order_id"), App: textOf[bourse.AppName](r, "app"), AppID: textOf[string](r, "app_id"), Worker: r.Site,
		})
	}
	return true
}

func textOf[T ~string](r *wire.Version, column string) T {
	text, _ := r.Columns.Get(column).(string)
	return T(text)
}

// recheckPlacements rechecks rows whose placement was invalid when they arrived. It may be valid
// now, because this member may have come to trust the CA of the broker's certificate.
func (b *batch) recheckPlacements() error {
	for _, table := range []string{wire.TableMachines, wire.TableVolumes} {
		type address struct {
			site bourse.WorkerID
			key  string
		}
		var unplaced []address
		err := schema.Query(b.conn, "SELECT site, key FROM "+table+"_rows WHERE NOT placed AND placement IS NOT NULL LIMIT ?", func(s *sqlite.Stmt) error {
			unplaced = append(unplaced, address{bourse.WorkerID(s.ColumnText(0)), s.ColumnText(1)})
			return nil
		}, maxExpire)
		if err != nil {
			return err
		}
		for _, at := range unplaced {
			r, ok, err := b.tables.Find(b.conn, table, false, at.site, at.key)
			if err != nil {
				return err
			}
			if ok && b.placed(&r) {
				old := r
				if err := b.replace(&old, r); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
