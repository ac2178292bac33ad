package inventory

import (
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/view/wire"
)

// WorkerRow says what others may know of a worker: all but the number of its
// machines. Its ledger is exact, for people; what is free and the load are rounded, for
// placement. A worker that is leaving takes no orders.
func WorkerRow(f *bourse.Facts, leaving bool) wire.Row {
	labels := "{}"
	if len(f.Labels) > 0 {
		labels = jsonText(f.Labels, labels)
	}
	return wire.Row{Table: wire.TableWorkers, Key: string(f.Worker), Columns: map[string]wire.Value{
		"region": cleanText(f.Region), "tag": int64(f.Tag), "version": cleanText(f.Version),
		"labels": labels, "capacity": listText(f.Accounts), "free": listText(coarseFree(f.Accounts)), "drivers": listText(f.Drivers),
		"load": coarseLoad(f.Load), "leaving": boolean(leaving), "cordoned": boolean(f.Cordon != nil),
	}}
}

// WorkerHint is what the view knows of a worker.
type WorkerHint struct {
	ID         bourse.WorkerID
	Region     bourse.Region
	Tag        bourse.WorkerTag
	Free       bourse.Amounts // coarse; nil when it is not known
	Load       float64        // coarse
	Leaving    bool           // takes no orders
	Labels     map[string]string
	HostStatus machinesapi.HostStatus // of its worker
	HeardAt    time.Time              // when its host was last heard; zero: never
}
