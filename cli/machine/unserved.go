package machine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/workload"
)

// servicesOf returns the services of a config that have external ports. c may be nil.
func servicesOf(c *bourse.Config) []workload.Service {
	if c == nil {
		return nil
	}
	return slices.DeleteFunc(workload.Services(c), func(s workload.Service) bool { return len(s.Ports) == 0 })
}

// servedPorts describes the mapping from external to internal ports.
func servedPorts(list []workload.Service) string {
	var parts []string
	for _, s := range list {
		for _, p := range s.Ports {
			parts = append(parts, fmt.Sprintf("%d/%s to port %d", p.First, s.Protocol, s.InternalPort))
		}
	}
	return strings.Join(parts, ", ")
}

// served describes in one line how m's services can be accessed. It returns "" if m has no
// services with external ports.
func served(m *machinesapi.Machine) string {
	list := servicesOf(m.Known())
	if len(list) == 0 {
		return ""
	}
	ports := fmt.Sprintf("port %d", list[0].Ports[0].First)
	if len(list) > 1 || len(list[0].Ports) > 1 {
		ports = "its ports"
	}
	switch {
	case m.Known().ImageKind() == bourse.PollerImage:
		return "no proxy serves " + ports + ", because a poller's machines cannot be accessed"
	case !slices.ContainsFunc(list, func(s workload.Service) bool { return s.Protocol == "tcp" }):
		return "no proxy serves " + ports + ", because proxies only serve TCP"
	}
	text := fmt.Sprintf("proxies serve %s; with bourse dev: http://%s.localhost:8080", ports, m.App)
	if command := forwardCommand(m, list); command != "" {
		text += "; without a proxy: " + command
	}
	return text
}

// forwardCommand returns a command that forwards a local port to m's first TCP service. It
// returns "" if m has no such service, or if a poller runs m, because pollers' machines
// cannot be accessed.
func forwardCommand(m *machinesapi.Machine, list []workload.Service) string {
	i := slices.IndexFunc(list, func(s workload.Service) bool { return s.Protocol == "tcp" && s.InternalPort > 0 })
	if i < 0 || m.Known().ImageKind() == bourse.PollerImage {
		return ""
	}
	there := list[i].InternalPort
	here := there
	if here < 1024 { // only root may listen on ports below 1024
		here += 8000
	}
	return fmt.Sprintf("bourse machine forward%s %s %d:%d", appFlag(m.App), m.ID, here, there)
}
