package gateway

import (
	"net/http"
	"time"

	"github.com/bourse-dev/bourse"
)

// state is a job's state in a reply to a client.
type state struct {
	Name     string           `json:"name"`
	Machine  bourse.MachineID `json:"machine"`
	State    bourse.State     `json:"state"`
	By       string           `json:"by,omitempty"`
	Host     string           `json:"host,omitempty"`
	ExitCode *int             `json:"exit_code,omitempty"` // set once the job has ended; -1: unknown
	Error    string           `json:"error,omitempty"`     // why the exit code is unknown
	EndedAt  time.Time        `json:"ended_at,omitzero"`
	Output   string           `json:"output,omitempty"` // output from the poller's report; only for callers that send the job's ticket
}

// status replies with the state of a job in the default app.
func (g *Gateway) status(w http.ResponseWriter, r *http.Request) error {
	m, err := g.find(r)
	if err != nil {
		return err
	}
	out := g.stateOf(&m)
	if !hasTicket(r, &m) {
		out.Output = ""
	}
	writeBody(w, out)
	return nil
}

// hasTicket reports whether a request contains the ticket with which the job was submitted.
func hasTicket(r *http.Request, m *bourse.Machine) bool {
	return submitted(m) && ticketIn(r).Named(m.Config.Metadata[ticketKey])
}

func (g *Gateway) stateOf(m *bourse.Machine) *state {
	out := &state{Name: m.Name, Machine: m.ID, State: m.State}
	held, ok := g.cfg.Driver.Held(m.ID)
	if ok {
		out.By, out.Host = held.By, held.Host
	}
	if exit := m.Boot.Exit; exit != nil {
		out.ExitCode, out.Error, out.EndedAt, out.Output = &exit.Code, exit.Error, exit.At, string(held.Output)
	}
	return out
}

// cancel ends a job. A job that has not been claimed will not run. Canceling an ended job is not an error. Jobs that
// were not submitted through the gateway cannot be canceled here, but can be stopped through a broker.
func (g *Gateway) cancel(w http.ResponseWriter, r *http.Request) error {
	m, err := g.find(r)
	if err != nil {
		return err
	}
	if !hasTicket(r, &m) {
		return bourse.Errorf(bourse.CodeForbidden, "job %s was not submitted with this ticket", bourse.Quoted(m.Name))
	}
	if !hasEnded(&m) {
		if m, err = g.cfg.Machines.Stop(r.Context(), m.ID); err != nil {
			return err
		}
	}
	writeBody(w, g.stateOf(&m))
	return nil
}

// find returns the machine of the job named in a request's path.
func (g *Gateway) find(r *http.Request) (bourse.Machine, error) {
	name, err := nameIn(r)
	if err != nil {
		return bourse.Machine{}, err
	}
	app, err := g.cfg.Machines.App(r.Context(), bourse.DefaultAppName)
	if err != nil {
		return bourse.Machine{}, err
	}
	m, err := g.cfg.Machines.Named(r.Context(), app, name)
	if bourse.CodeOf(err) == bourse.CodeNotFound || err == nil && m.Config.ImageKind() != bourse.PollerImage {
		return m, bourse.Errorf(bourse.CodeNotFound, "job %s not found", bourse.Quoted(name))
	}
	return m, err
}
