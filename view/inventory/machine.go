package inventory

import (
	"net/netip"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/wire"
	"github.com/bourse-dev/bourse/workload"
)

// maxEvents is the maximum number of events that are published for each machine. Older events are omitted.
const maxEvents = 2

// MachineRow returns the row for a machine. It omits the lease's nonce, older events, and values that do not fit
// into their columns.
func MachineRow(m *bourse.Machine) wire.Row {
	return wire.Row{Table: wire.TableMachines, Key: string(m.ID), Columns: map[string]wire.Value{
		"app": cleanText(m.App), "app_id": cleanText(m.AppID), "name": cleanText(m.Name), "region": cleanText(m.Region),
		"order_id": cleanText(m.Order), "placement": placementBytes(m.Placement), "instance": cleanText(m.Instance), "state": cleanText(m.State),
		"config":     configText(m.Config),
		"takes":      listText(m.Takes),
		"cordoned":   boolean(m.Cordoned),
		"boot":       jsonText(m.Boot, "{}"),
		"lease":      leaseText(m.Lease),
		"checks":     listText(workload.CheckStatuses(m)),
		"events":     listText(m.LastEvents[:min(len(m.LastEvents), maxEvents)]),
		"image":      imageText(m.Image),
		"private_ip": addressText(m.PrivateIP),
		"network":    cleanText(m.Network),
		"created_at": nanos(m.CreatedAt),
		"updated_at": nanos(m.UpdatedAt),
	}}
}

// placementBytes returns a signed placement as the value of a column, or nil if there is no
// placement.
func placementBytes(signed []byte) wire.Value {
	if len(signed) == 0 {
		return nil
	}
	return signed
}

// imageText encodes an image reference. If the result is too large, imageText omits the labels.
func imageText(ref *bourse.ImageRef) wire.Value {
	if ref == nil {
		return nil
	}
	if s, ok := jsonFits(ref); ok {
		return s
	}
	bare := *ref
	bare.Labels = nil
	if s, ok := jsonFits(bare); ok {
		return s
	}
	return nil
}

func addressText(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

// configText encodes a config without its secret parts. If the result is too large for a row,
// configText omits further parts, the least important ones first.
func configText(c bourse.Config) string {
	c = c.Public()
	for _, leaveOut := range []func(){
		func() {},
		func() { c.StoredConfig, c.Schedule, c.DNS = bourse.StoredConfig{Services: c.Services}, "", nil },
		func() { c.StoredConfig, c.Standbys = bourse.StoredConfig{}, nil },
		func() { c.Init = bourse.Init{} },
		func() { c = bourse.Config{Image: c.Image, Guest: c.Guest} },
	} {
		leaveOut()
		if s, ok := jsonFits(c); ok {
			return s
		}
	}
	return "{}"
}

// listText encodes a list. nil becomes an empty list.
func listText[T any](list []T) string {
	if len(list) == 0 {
		return "[]"
	}
	return jsonText(list, "[]")
}

// publicLease is a lease without its nonce, because the nonce authorizes changes.
type publicLease struct {
	Owner       string    `json:"owner"`
	Description string    `json:"description,omitempty"`
	ExpiresAt   time.Time `json:"expires_at"`
}

func leaseText(l *bourse.Lease) wire.Value {
	if l == nil {
		return nil
	}
	if s, ok := jsonFits(publicLease{l.Owner, l.Description, l.ExpiresAt}); ok {
		return s
	}
	return nil
}

// machineColumns lists the columns that readMachine reads. The statement must use r as the alias of machine_rows.
const machineColumns = `r.key, r.site, r.app, r.name, r.region, r.order_id, r.instance, r.state, r.cordoned,
	r.created_at, r.updated_at, r.config, r.takes, r.boot, r.lease, r.events, r.image, r.private_ip, r.network, r.app_id, r.checks, r.placed`

// readMachine reads a machine from a result whose first columns are machineColumns, and returns the
// number of columns that it has read. Values that cannot be decoded are left empty, because the
// site may be malicious or run another release. If no broker has signed the machine's placement,
// the machine's app is left empty.
func readMachine(r *cells, m *bourse.Machine) int {
	*m = bourse.Machine{
		ID: bourse.MachineID(r.ColumnText(0)), Worker: bourse.WorkerID(r.ColumnText(1)), App: bourse.AppName(r.ColumnText(2)),
		Name: r.ColumnText(3), Region: bourse.Region(r.ColumnText(4)), Order: bourse.OrderID(r.ColumnText(5)),
		Instance: bourse.InstanceID(r.ColumnText(6)), State: bourse.State(r.ColumnText(7)), Cordoned: r.ColumnBool(8),
		CreatedAt: r.time(9), UpdatedAt: r.time(10),
	}
	if !r.json(11, &m.Config) {
		m.Config = bourse.Config{}
	}
	m.Takes = readAmounts(r, 12)
	if !r.json(13, &m.Boot) {
		m.Boot = bourse.Boot{}
	}
	var lease publicLease
	if !r.ColumnIsNull(14) && r.json(14, &lease) {
		m.Lease = &bourse.Lease{Owner: lease.Owner, Description: lease.Description, ExpiresAt: lease.ExpiresAt}
	}
	if !r.empty(15) && !r.json(15, &m.LastEvents) {
		m.LastEvents = nil
	}
	var ref bourse.ImageRef
	if !r.ColumnIsNull(16) && r.json(16, &ref) {
		m.Image = &ref
	}
	if r.ColumnLen(17) > 0 {
		m.PrivateIP, _ = netip.ParseAddr(r.ColumnText(17)) // invalid addresses become the zero address
	}
	m.Network, m.AppID = r.ColumnText(18), r.ColumnText(19)
	var found []bourse.CheckStatus
	if !r.empty(20) && r.json(20, &found) {
		m.Checks = &bourse.CheckResults{Boot: m.Boot.Number, Results: found}
	}
	if !r.ColumnBool(21) {
		m.App, m.AppID = "", ""
	}
	return 22
}

// readAmounts decodes the amounts in a column. It returns nil if the column does not contain valid
// amounts.
func readAmounts(r *cells, column int) bourse.Amounts {
	var a bourse.Amounts
	if r.empty(column) || !r.json(column, &a) || a.Validate() != nil {
		return nil
	}
	return a
}
