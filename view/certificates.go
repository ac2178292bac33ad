package view

import (
	"context"
	"maps"
	"slices"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse/view/schema"
	"github.com/bourse-dev/bourse/view/wire"
)

// Certificates returns the certificates that were used to sign the view's transactions, shared rows
// and placements. Each element contains a certificate in DER form, followed by its intermediate
// certificates.
func (v *View) Certificates(ctx context.Context) ([]string, error) {
	found := map[string]bool{}
	err := v.Read(ctx, func(c *sqlite.Conn) error {
		err := schema.Query(c, "SELECT birth FROM births UNION SELECT birth FROM streams", func(s *sqlite.Stmt) error {
			birth, _ := schema.ValueAt(s, 0).([]byte)
			found[string(birth)] = true
			return nil
		})
		for _, table := range []string{wire.TableMachines, wire.TableVolumes} {
			if err != nil {
				return err
			}
			err = schema.Query(c, "SELECT placement FROM "+table+"_rows WHERE placed AND placement IS NOT NULL", func(s *sqlite.Stmt) error {
				signed, _ := schema.ValueAt(s, 0).([]byte)
				if cert, err := wire.PlacementCertificate(signed); err == nil {
					found[string(cert)] = true
				}
				return nil
			})
		}
		return err
	})
	return slices.Collect(maps.Keys(found)), err
}
