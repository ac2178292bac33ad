package pull

import (
	"time"

	"github.com/bourse-dev/bourse"
)

// Claimer identifies the poller that claims a job. A poller may repeat a claim with the same
// ticket.
type Claimer struct {
	By     string // display name, such as the poller's name
	Host   string // name of the poller's registered host, or ""
	Ticket Ticket // the poller's ticket; for a host, the ticket of its registration
}

// Claim assigns an offered job to the first caller that claims it. When it returns nil, the claim
// has been written to disk. Errors: not_found if the job or the host does not exist; conflict if
// another poller has claimed the job or the host has no room for it; forbidden if the host was
// registered with another ticket; unavailable if the claim could not be written, in which case the
// job is still offered.
func (d *Driver) Claim(name string, claimer Claimer) error {
	d.mu.Lock()
	j, err := d.claimable(name, claimer)
	if err != nil {
		d.mu.Unlock()
		return err
	}
	if j.phase == running { // a repeated claim
		j.lastSeen = time.Now()
		d.mu.Unlock()
		return nil
	}
	j.By, j.Host, j.StartedAt, j.Ticket = claimer.By, claimer.Host, time.Now().UTC(), claimer.Ticket.hash()
	j.enter(claiming)
	d.mu.Unlock()

	err = d.write(j.record)

	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		j.By, j.Host, j.Ticket = "", "", nil
		j.enter(offered)
		return bourse.Errorf(bourse.CodeUnavailable, "write the claim of job %s: %w", name, err)
	}
	delete(d.offers, j.ID.Machine)
	d.jobs[j.ID.Machine] = j
	d.useCapacity(j)
	j.lastSeen = time.Now()
	j.enter(running)
	d.notify() // wakes calls to Logs that follow the machine's log
	return nil
}

// claimable returns the named job if the claimer may claim it or has already claimed it. Otherwise,
// it returns an error. mu must be held.
func (d *Driver) claimable(name string, claimer Claimer) (*job, error) {
	h, err := d.hostNamed(claimer.Host, claimer.Ticket)
	if err != nil {
		return nil, err
	}
	j := d.names[name]
	switch {
	case j == nil:
		return nil, errNoJob(name)
	case j.phase == running && claimer.Ticket.matches(j.Ticket) && j.Host == claimer.Host:
		return j, nil
	case j.phase != offered:
		return nil, bourse.Errorf(bourse.CodeConflict, "job %s was already claimed", name)
	case h != nil && j.to != h && !d.free(h).holds(j.Size):
		return nil, bourse.Errorf(bourse.CodeConflict, "host %s no longer has room for job %s", h.name, name)
	}
	return j, nil
}

func errNoJob(name string) error {
	return bourse.Errorf(bourse.CodeNotFound, "job %s not found", bourse.Quoted(name))
}

// Report is a poller's report that a job has ended.
type Report struct {
	Code   int    // exit code from 0 to 255, or -1 if Error is set
	Error  string // if set, the reason why the poller returned the job without an exit code
	Output []byte // only the last MaxOutput bytes are stored
	Ticket Ticket // the ticket that was used to claim the job
}

// End records the end of a job. When it returns nil, the end has been written to disk. A repeated
// End returns nil and has no effect. Errors: not_found if there is no such job; invalid if the exit
// code is impossible; forbidden if the job was claimed with another ticket; conflict if the job is
// not claimed or has been given up; unavailable if the end could not be written.
func (d *Driver) End(name string, r Report) error {
	if r.Error == "" && (r.Code < 0 || r.Code > 255) {
		return bourse.Errorf(bourse.CodeInvalid, "invalid exit code %d: use 0 to 255", r.Code)
	}
	d.mu.Lock()
	j := d.names[name]
	anothers := j != nil && j.claimed() && !r.Ticket.matches(j.Ticket)
	d.mu.Unlock()
	switch {
	case j == nil:
		return errNoJob(name)
	case anothers:
		return errOtherTicket(name)
	}
	return d.finish(j, bourse.Exit{Code: r.Code, Error: r.Error}, r.Output, false)
}

// finish records the end of a claimed job. If the job has already ended, it keeps the first result.
func (d *Driver) finish(j *job, exit bourse.Exit, output []byte, givenUp bool) error {
	d.mu.Lock()
	for j.phase == ending { // another call is recording the end; the first call wins
		changed := j.changed
		d.mu.Unlock()
		<-changed // closed when the write has succeeded or failed
		d.mu.Lock()
	}
	switch j.phase {
	case running:
	case ended:
		defer d.mu.Unlock()
		if j.GivenUp && !givenUp {
			return bourse.Errorf(bourse.CodeConflict, "job %s was given up: %s", j.Name, j.Exit.Error)
		}
		return nil
	case offered, claiming, ending, withdrawn:
		defer d.mu.Unlock()
		return bourse.Errorf(bourse.CodeConflict, "job %s has not been claimed", j.Name)
	}
	next := j.record
	exit.At = time.Now().UTC()
	next.Exit, next.GivenUp = &exit, givenUp
	next.Output = output[max(0, len(output)-MaxOutput):]
	j.enter(ending)
	d.mu.Unlock()

	err := d.write(next)

	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		j.lastSeen = time.Now()
		j.enter(running)
		return bourse.Errorf(bourse.CodeUnavailable, "write the end of job %s: %w", j.Name, err)
	}
	d.releaseCapacity(j)
	j.Exit, j.GivenUp, j.Output = next.Exit, next.GivenUp, next.Output
	j.enter(ended)
	d.notify()
	return nil
}
