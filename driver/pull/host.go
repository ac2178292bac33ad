package pull

import (
	"errors"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
)

// host is a registered host. Its fields are guarded by Driver.mu.
type host struct {
	name       string
	ticketHash []byte // hash of the host's ticket
	size       Size
	polls      int       // number of open calls to Next
	lastSeen   time.Time // when the host last registered, or when its latest call to Next ended, whichever is later
}

// MaxHosts is the maximum number of registered hosts.
const MaxHosts = 10_000

// Register adds a host or changes its size. If running is not nil, it must list the names of the jobs that are still
// running on the host. Register records that the host's other jobs have failed. Errors: invalid for an invalid name or
// size; forbidden if the host or its jobs belong to another ticket; rate_limited if there are too many hosts; unavailable
// if a job's exit could not be recorded.
func (d *Driver) Register(name string, ticket Ticket, size Size, running []string) error {
	if err := d.addHost(name, ticket, size); err != nil || running == nil {
		return err
	}
	var errs []error
	for _, j := range d.missing(name, running) {
		errs = append(errs, d.giveUp(j, "host "+name+" registered again without this job"))
	}
	return errors.Join(errs...)
}

// missing returns the jobs of a host that are running according to the driver, but whose names are not in reported.
func (d *Driver) missing(name string, reported []string) []*job {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []*job
	for _, j := range d.jobs {
		if j.Host == name && j.phase == running && !slices.Contains(reported, j.Name) {
			out = append(out, j)
		}
	}
	return out
}

func (d *Driver) addHost(name string, ticket Ticket, size Size) error {
	if bourse.ValidateMachineName(name) != nil {
		return bourse.Errorf(bourse.CodeInvalid, "invalid host %s: use 1 to 63 of a-z, 0-9 and \"-\"", bourse.Quoted(name))
	}
	if size.CPU < 1 || size.CPU > bourse.MaxCPUs*1000 || size.Memory < 1 || size.Memory > bourse.MaxMemory || size.Disk < 0 || size.Disk > bourse.MaxAmount {
		return bourse.Errorf(bourse.CodeInvalid, "invalid size of host %s: %d thousandths of a CPU, %d MiB of memory, %d MiB of disk", name, size.CPU, size.Memory, size.Disk)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.belongsToOther(name, ticket) {
		return errNotThisHost(name)
	}
	h := d.hosts[name]
	if h == nil {
		if len(d.hosts) >= MaxHosts {
			return bourse.Errorf(bourse.CodeRateLimited, "the maximum of %d hosts has been reached", len(d.hosts))
		}
		h = &host{name: name, ticketHash: ticket.hash()}
		d.hosts[name] = h
	}
	h.size, h.lastSeen = size, time.Now()
	return nil
}

// belongsToOther reports whether a host belongs to a ticket other than ticket. A host belongs to the ticket that was
// used when it was first registered. After the daemon restarts, and until the host registers again, it belongs to the
// ticket that claimed its running jobs. mu must be held.
func (d *Driver) belongsToOther(name string, ticket Ticket) bool {
	if h := d.hosts[name]; h != nil {
		return !ticket.matches(h.ticketHash)
	}
	for _, j := range d.jobs {
		if j.Host == name && j.phase == running && !ticket.matches(j.Ticket) {
			return true
		}
	}
	return false
}

func errNotThisHost(name string) error {
	return bourse.Errorf(bourse.CodeForbidden, "host %s was registered with another ticket", bourse.Quoted(name))
}

// hostNamed returns the registered host with the given name, or nil if name is empty. It returns an error if the
// host is not registered or belongs to another ticket. mu must be held.
func (d *Driver) hostNamed(name string, ticket Ticket) (*host, error) {
	if name == "" {
		return nil, nil
	}
	h := d.hosts[name]
	if h == nil {
		return nil, bourse.Errorf(bourse.CodeNotFound, "host %s is not registered", bourse.Quoted(name))
	}
	if !ticket.matches(h.ticketHash) {
		return nil, errNotThisHost(name)
	}
	return h, nil
}

// free returns the unused capacity of a host: its size minus the sizes of its jobs and of the
// jobs being offered to it. mu must be held.
func (d *Driver) free(h *host) Size {
	left := h.size.less(d.used[h.name])
	for _, j := range d.offers {
		if j.Host == h.name || j.Host == "" && j.to == h {
			left = left.less(j.Size)
		}
	}
	return left
}

// useCapacity adds j's size to the used capacity of the host that claimed j, and releaseCapacity subtracts it.
// mu must be held.
func (d *Driver) useCapacity(j *job) {
	if j.Host != "" {
		d.used[j.Host] = d.used[j.Host].plus(j.Size)
	}
}

func (d *Driver) releaseCapacity(j *job) {
	if j.Host == "" {
		return
	}
	if d.used[j.Host] = d.used[j.Host].less(j.Size); d.used[j.Host] == (Size{}) {
		delete(d.used, j.Host)
	}
}
