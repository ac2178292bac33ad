package view

import (
	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/schema"
	"github.com/bourse-dev/bourse/view/wire"
)

// placed reports whether a placement signed by a broker confirms that a machine or volume belongs
// to the app that its row names. It always returns true in a cluster without certificates, and for
// this server's own rows, whose placements only other members check.
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

// recheckPlacements rechecks rows whose placements were invalid when they arrived. A placement may
// be valid now, because this server may have received the CA of the broker's certificate in the
// meantime.
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
