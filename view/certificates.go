package view

import (
	"bytes"
	"context"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse/view/schema"
	"github.com/bourse-dev/bourse/view/wire"
)

// Certificates returns the certificates, in DER and followed by their issuers, with which the
// transactions, shared rows and placements in the view were signed. Some may occur several times.
func (v *View) Certificates(ctx context.Context) (certs [][]byte, err error) {
	err = v.Read(ctx, func(c *sqlite.Conn) error {
		add := func(s *sqlite.Stmt) error {
			birth, _ := schema.ValueAt(s, 0).([]byte)
			certs = append(certs, birth)
			return nil
		}
		if err := schema.Query(c, "SELECT birth FROM births UNION SELECT birth FROM streams", add); err != nil {
			return err
		}
		for _, table := range []string{wire.TableMachines, wire.TableVolumes} {
			err := schema.Query(c, "SELECT placement FROM "+table+"_rows WHERE placed AND placement IS NOT NULL", func(s *sqlite.Stmt) error {
				signed, _ := schema.ValueAt(s, 0).([]byte)
				cert, err := wire.PlacementCertificate(signed)
				if err == nil && (len(certs) == 0 || !bytes.Equal(cert, certs[len(certs)-1])) { // usually the broker of the row before
					certs = append(certs, cert)
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	return certs, err
}
