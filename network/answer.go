package network

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"

	"github.com/bourse-dev/bourse"
)

// answer contains everything that the resolver can answer about a name, for all record types.
type answer struct {
	exists    bool         // whether the name exists
	addresses []netip.Addr // AAAA
	text      []string     // parts of the single TXT record, which are joined by separator
	separator string
}

// maxAddresses is the maximum number of machines in one answer. A UDP answer has room for about 50.
const maxAddresses = 1024

// answer answers a query from client, the machine that sent it, for the name n. Names in other private networks do not
// exist for that machine. If answer returns an error, the reply is SERVFAIL.
func (d *directory) answer(ctx context.Context, client Spec, n name) (answer, error) {
	switch n.kind {
	case nameUnknown:
		return answer{}, nil
	case nameApps, nameInstances:
		return d.overview(ctx, client, n)
	case nameEmpty:
		if n.app == "" {
			return answer{exists: true}, nil
		}
	default:
	}
	e, err := d.lookup(ctx, n.app)
	if err != nil {
		return answer{}, err
	}
	if !e.known || e.app.DeletedAt != nil || e.app.PrivateNetwork() != client.Network {
		return answer{}, nil
	}
	a := choose(n, e.records)
	if n.kind == nameNearest {
		a = d.nearest(client, e.records, n.count)
	} else if len(a.addresses) > 0 {
		// Start with a random address, to spread the clients over all addresses.
		first := rand.IntN(len(a.addresses))
		a.addresses = slices.Concat(a.addresses[first:], a.addresses[:first])
	}
	a.addresses = a.addresses[:min(len(a.addresses), maxAddresses)]
	return a, nil
}

// choose returns the answer for a name below an app's name. records describes the app's machines.
func choose(n name, records []record) answer {
	switch n.kind {
	case nameMachines, nameRegions:
		return listText(n, records)
	case nameApp:
		return addresses(true, records, func(*record) bool { return true })
	case nameRegion:
		return addresses(false, records, func(r *record) bool { return string(r.region) == n.value })
	case nameMachine:
		return byIDOrName(n.value, records)
	case nameGroup:
		return addresses(false, records, func(r *record) bool { return equalFold(r.metadata[processGroup], n.value) })
	case nameMetadata:
		return addresses(false, records, func(r *record) bool { return hasMetadata(r, n.key, n.value) })
	default:
		return answer{exists: true}
	}
}

// nearest returns the addresses of the machines nearest to the client: first those on the client's host, then those in
// its region.
func (d *directory) nearest(client Spec, records []record, count int) answer {
	distance := func(r *record) int {
		switch {
		case r.id.Tag() == client.Machine.Tag():
			return 0
		case r.region == d.region:
			return 1
		}
		return 2
	}
	records = slices.Clone(records)
	rand.Shuffle(len(records), func(i, j int) { records[i], records[j] = records[j], records[i] })
	slices.SortStableFunc(records, func(a, b record) int { return distance(&a) - distance(&b) })
	a := addresses(true, records, func(*record) bool { return true })
	a.addresses = a.addresses[:min(count, len(a.addresses))]
	return a
}

// addresses returns an answer with the addresses of all ready machines for which fits returns true. The answer reports
// that the name exists if the exists parameter is set or if fits returns true for any machine, ready or not. If only
// ready machines counted, clients could cache the answer that the name does not exist while no machine is ready.
func addresses(exists bool, records []record, fits func(*record) bool) answer {
	a := answer{exists: exists}
	for i := range records {
		r := &records[i]
		if !fits(r) {
			continue
		}
		a.exists = true
		if r.ready {
			a.addresses = append(a.addresses, r.address)
		}
	}
	return a
}

// byIDOrName returns the address of the machine with the given id or name, even if the machine is not ready. A value
// that has the format of an id is never interpreted as a name, so that a machine named after another machine's id
// cannot impersonate that machine.
func byIDOrName(value string, records []record) (a answer) {
	id := bourse.MachineID(value)
	byID := id.Validate() == nil
	for i := range records {
		r := &records[i]
		if byID && r.id != id || !byID && r.name != value {
			continue
		}
		a.exists = true
		if r.listed {
			a.addresses = append(a.addresses, r.address)
		}
	}
	return a
}

// listText returns the TXT record that lists an app's machines or their regions.
func listText(n name, records []record) answer {
	a := answer{exists: true, separator: ","}
	for _, r := range records {
		switch {
		case !r.listed && !n.all:
		case n.kind == nameMachines:
			a.text = append(a.text, string(r.id)+" "+string(r.region))
		default:
			a.text = append(a.text, string(r.region))
		}
	}
	slices.Sort(a.text)
	a.text = slices.Compact(a.text)
	return a
}

// maxApps is the maximum number of apps in an answer to an _instances query.
const maxApps = 256

// overview answers _apps and _instances queries, which concern the whole private network.
func (d *directory) overview(ctx context.Context, client Spec, n name) (answer, error) {
	apps, err := d.list(client.Network)
	if err != nil {
		return answer{}, err
	}
	a := answer{exists: true, separator: ","}
	if n.kind == nameApps {
		for _, app := range apps {
			a.text = append(a.text, string(app))
		}
		slices.Sort(a.text)
		return a, nil
	}
	a.separator = ";"
	for _, app := range apps[:min(len(apps), maxApps)] {
		e, err := d.lookup(ctx, app)
		if err != nil {
			return answer{}, err
		}
		if !e.known || e.app.PrivateNetwork() != client.Network {
			continue
		}
		for _, r := range e.records {
			if r.listed {
				a.text = append(a.text, instance(app, r))
			}
		}
	}
	slices.Sort(a.text)
	return a, nil
}

func instance(app bourse.AppName, r record) string {
	return "instance=" + string(r.id) + ",app=" + string(app) + ",ip=" + r.address.String() + ",region=" + string(r.region)
}

// hasMetadata reports whether a machine's metadata contains the given key with the given value. It ignores case, as DNS
// does, but an exact match of the key takes precedence.
func hasMetadata(r *record, key, value string) bool {
	if v, ok := r.metadata[key]; ok {
		return equalFold(v, value)
	}
	for k, v := range r.metadata {
		if equalFold(k, key) && equalFold(v, value) {
			return true
		}
	}
	return false
}

// equalFold reports whether a and b are equal, ignoring letter case. It returns false if either string is empty.
func equalFold(a, b string) bool {
	return a != "" && len(a) == len(b) && strings.EqualFold(a, b)
}
