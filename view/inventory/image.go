package inventory

import (
	"cmp"
	"slices"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/view/schema"
	"github.com/bourse-dev/bourse/view/wire"
)

// ImageRow returns the row for an image on this worker. Its key is the digest in the image's
// reference.
func ImageRow(i *bourse.Image) wire.Row {
	named := i.Ref
	named.Digest = ""
	return wire.Row{Table: wire.TableImages, Key: cleanText(i.Ref.Digest), Columns: map[string]wire.Value{
		"name": shortText(named.String()), "bytes": i.Bytes, "used_at": nanos(i.UsedAt),
	}}
}

// ListedImage is an image as last published by its worker, together with the worker's status.
type ListedImage struct {
	bourse.Image // only Ref, Bytes and UsedAt are set
	Worker       bourse.WorkerID
	HostStatus   machinesapi.HostStatus // the worker's status
	HeardAt      time.Time              // time when the worker was last reachable; zero if it never was
}

// ImageFilter selects the images that match all fields that are set.
type ImageFilter struct {
	Digest string
	Worker bourse.WorkerID
}

// Images returns a query for the images that match a filter, sorted by name, digest and worker.
func Images(f ImageFilter) func(*sqlite.Conn) ([]ListedImage, error) {
	return func(c *sqlite.Conn) ([]ListedImage, error) { return readImages(c, f) }
}

const imagesFrom = `SELECT r.key, r.site, r.name, r.bytes, r.used_at, ` + hostColumns + ` FROM image_rows AS r LEFT JOIN sites AS s ON s.site = r.site WHERE `

func imagesSQL(f ImageFilter) (string, []any) {
	return where(imagesFrom, condition{"r.key", f.Digest}, condition{"r.site", string(f.Worker)})
}

func readImages(c *sqlite.Conn, f ImageFilter) ([]ListedImage, error) {
	sql, args := imagesSQL(f)
	var list []ListedImage
	err := schema.Query(c, sql, func(s *sqlite.Stmt) error {
		r := &cells{Stmt: s}
		l := ListedImage{Worker: bourse.WorkerID(r.ColumnText(1))}
		l.Ref = bourse.ParseImageRef(r.ColumnText(2) + "@" + r.ColumnText(0))
		l.Bytes, l.UsedAt = r.ColumnInt64(3), r.time(4)
		l.HostStatus, l.HeardAt = readHost(r, 5)
		list = append(list, l)
		return nil
	}, args...)
	slices.SortFunc(list, func(a, b ListedImage) int {
		return cmp.Or(cmp.Compare(a.Ref.String(), b.Ref.String()), cmp.Compare(a.Worker, b.Worker))
	})
	return list, err
}
