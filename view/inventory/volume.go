package inventory

import (
	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/wire"
)

// maxSnapshots is the maximum number of snapshots that are published for each volume. Older snapshots are omitted.
const maxSnapshots = 8

// VolumeRow returns the row for a volume. It omits the used space, older snapshots, and values that do not fit
// into their columns.
func VolumeRow(v *bourse.Volume) wire.Row {
	return wire.Row{Table: wire.TableVolumes, Key: string(v.ID), Columns: map[string]wire.Value{
		"app": cleanText(v.App), "app_id": cleanText(v.AppID), "name": cleanText(v.Spec.Name), "region": cleanText(v.Region),
		"order_id": cleanText(v.Order), "placement": placementBytes(v.Placement), "state": cleanText(v.State),
		"size_gb": v.Spec.SizeGB, "encrypted": boolean(v.Spec.Encrypted),
		"machine":    cleanText(v.Machine),
		"spec":       jsonText(v.Spec, "{}"),
		"takes":      listText(v.Takes),
		"error":      shortText(v.Error),
		"snapshots":  listText(v.Snapshots[max(0, len(v.Snapshots)-maxSnapshots):]),
		"created_at": nanos(v.CreatedAt),
		"updated_at": nanos(v.UpdatedAt),
	}}
}

// shortText is like cleanText, but also truncates s.
func shortText(s string) string {
	const most = 4 << 10
	return cleanText(s[:min(len(s), most)])
}

// volumeColumns lists the columns that readVolume reads. The statement must use r as the alias of volume_rows.
const volumeColumns = `r.key, r.site, r.app, r.region, r.order_id, r.state, r.machine, r.error, r.created_at, r.updated_at,
	r.name, r.size_gb, r.encrypted, r.spec, r.takes, r.snapshots, r.app_id, r.placed`

// readVolume reads a volume from a result whose first columns are volumeColumns, and returns the
// number of columns that it has read. Values that cannot be decoded are left empty. If no broker
// has signed the volume's placement, the volume's app is left empty.
func readVolume(r *cells, v *bourse.Volume) int {
	*v = bourse.Volume{
		ID: bourse.VolumeID(r.ColumnText(0)), Worker: bourse.WorkerID(r.ColumnText(1)), App: bourse.AppName(r.ColumnText(2)),
		Region: bourse.Region(r.ColumnText(3)), Order: bourse.OrderID(r.ColumnText(4)), State: bourse.VolumeState(r.ColumnText(5)),
		Machine: bourse.MachineID(r.ColumnText(6)), Error: r.ColumnText(7), CreatedAt: r.time(8), UpdatedAt: r.time(9),
	}
	if !r.json(13, &v.Spec) {
		v.Spec = bourse.VolumeOrder{}
	}
	// These columns take precedence over the JSON, because users can query them.
	v.Spec.Name, v.Spec.SizeGB, v.Spec.Encrypted = r.ColumnText(10), r.ColumnInt64(11), r.ColumnBool(12)
	v.Takes = readAmounts(r, 14)
	if !r.empty(15) && !r.json(15, &v.Snapshots) {
		v.Snapshots = nil
	}
	v.AppID = r.ColumnText(16)
	if !r.ColumnBool(17) {
		v.App, v.AppID = "", ""
	}
	return 18
}
