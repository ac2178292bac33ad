package inventory

import (
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/view/wire"
)

// WorkerRow returns the row for a worker. The row contains the exact ledger for users, and rounded free amounts and a
// rounded load for brokers, which use these for placement. It does not contain the number of machines. leaving tells
// brokers that the worker no longer accepts orders.
func WorkerRow(f *bourse.Facts, leaving bool) wire.Row {
	labels := "{}"
	if len(f.Labels) > 0 {
		labels = jsonText(f.Labels, labels)
	}
	return wire.Row{Table: wire.TableWorkers, Key: string(f.Worker), Columns: map[string]wire.Value{
		"region": cleanText(f.Region), "tag": int64(f.Tag), "version": cleanText(f.Version),
		"labels": labels, "capacity": listText(f.Accounts), "free": listText(roundFree(f.Accounts)), "drivers": listText(f.Drivers),
		"load": roundLoad(f.Load), "leaving": boolean(leaving), "cordoned": boolean(f.Cordon != nil),
		"mesh": meshText(f.Mesh),
	}}
}

// meshText encodes a worker's mesh settings. It omits the peers, which change all the time.
func meshText(m *bourse.Mesh) wire.Value {
	if m == nil {
		return nil
	}
	public := *m
	public.Peers = nil
	if s, ok := jsonFits(public); ok {
		return s
	}
	return nil
}

// WorkerHint contains the view's data about a worker, which may be outdated.
type WorkerHint struct {
	ID         bourse.WorkerID
	Region     bourse.Region
	Tag        bourse.WorkerTag
	Free       bourse.Amounts // rounded; nil if unknown
	Load       float64        // rounded
	Leaving    bool           // whether the worker is leaving and no longer accepts orders
	Labels     map[string]string
	HostStatus machinesapi.HostStatus // the worker's status
	HeardAt    time.Time              // time when the worker was last reachable; zero if it never was
}
