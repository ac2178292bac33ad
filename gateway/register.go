package gateway

import (
	"crypto/rand"
	"math"
	"net/http"
	"strings"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver/pull"
)

// registration is the body of a request that registers a host.
type registration struct {
	Name string     `json:"name"` // the host's name; default: a random name
	CPU  float64    `json:"cpu"`  // number of cores
	Mem  bourse.MiB `json:"mem"`
	Disk bourse.MiB `json:"disk"`
	// Jobs that the host is still running. If this is not null, all other jobs of the host count as lost.
	Running []string `json:"running"`
}

func (r *registration) size() (pull.Size, error) {
	if math.IsNaN(r.CPU) || r.CPU <= 0 || r.CPU > bourse.MaxCPUs {
		return pull.Size{}, bourse.Errorf(bourse.CodeInvalid, "invalid cpu %g: use cores, up to %d", r.CPU, bourse.MaxCPUs)
	}
	return pull.Size{CPU: bourse.MilliCPU(r.CPU * 1000), Memory: r.Mem, Disk: r.Disk}, nil
}

// register registers a host, or updates the size of a registered host.
func (g *Gateway) register(w http.ResponseWriter, r *http.Request) error {
	var in registration
	if err := readBody(w, r, &in); err != nil {
		return err
	}
	size, err := in.size()
	if err != nil {
		return err
	}
	if in.Name == "" {
		in.Name = "host-" + strings.ToLower(rand.Text()[:12])
	}
	ticket, made, err := ticketOf(r)
	if err != nil {
		return err
	}
	if err := g.cfg.Driver.Register(in.Name, ticket, size, in.Running); err != nil {
		return err
	}
	writeBody(w, jobName{in.Name, made})
	return nil
}
