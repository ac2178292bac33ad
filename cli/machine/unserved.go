package machine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/workload"
)

// servicesOf returns the services of a config that proxies serve at some port.
func servicesOf(c *bourse.Config) []workload.Service {
	if c == nil {
		return nil
	}
	return slices.DeleteFunc(workload.Services(c), func(s workload.Service) bool { return len(s.Ports) == 0 })
}

// servedPorts shows which ports a machine's services are for.
func servedPorts(list []workload.Service) string {
	var parts []string
	for _, s := range list {
		for _, p := range s.Ports {
			parts = append(parts, fmt.Sprintf("%d/%s at its %d", p.First, s.Protocol, s.InternalPort))
		}
	}
	return strings.Join(parts, ", ")
}

// served says in a line how the ports of m's services are reached; "" when it has
// none.
func served(m *machinesapi.Machine) string {
	list := servicesOf(m.Known())
	if len(list) == 0 {
		return ""
	}
	what := fmt.Sprintf("port %d is", list[0].Ports[0].First)
	if len(list) > 1 || len(list[0].Ports) > 1 {
		what = "its ports are"
	}
	switch {
	case m.Known().ImageKind() == bourse.PollerImage:
		return what + " served by no proxy: there is no way to what a poller runs"
	case !slices.ContainsFunc(list, func(s workload.Service) bool { return s.Protocol == "tcp" }):
		return what + " served by no proxy: they pass on TCP"
	}
	text := fmt.Sprintf("%s served by proxies: app %s is http://%s.localhost:8080 at that of bourse dev", what, m.App, m.App)
	if command := forwardCommand(m, list); command != "" {
		text += "; without one reach it with: " + command
	}
	return text
}

// forwardCommand returns the command that reaches the first of m's services that
// can be reached, "" for none: forwarding is for TCP, and there is no way to
// what a poller runs.
func forwardCommand(m *machinesapi.Machine, list []workload.Service) string {
	i := slices.IndexFunc(list, func(s workload.Service) bool { return s.Protocol == "tcp" && s.InternalPort > 0 })
	if i < 0 || m.Known().ImageKind() == bourse.PollerImage {
		return ""
	}
	there := list[i].InternalPort
	here := there
	if here < 1024 { // which only root may listen on
		here += 8000
	}
	return fmt.Sprintf("bourse machine forward%s %s %d:%d", appFlag(m.App), m.ID, here, there)
}
