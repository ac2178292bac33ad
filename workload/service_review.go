package workload

import (
	"fmt"

	"github.com/bourse-dev/bourse"
)

// reviewServices returns what would surprise who asked for these services of a config:
// above all a machine that is stopped and that nothing starts again.
func reviewServices(c *bourse.Config, list []Service) (out []bourse.Warning) {
	warn := func(i int, field, message string) {
		out = append(out, bourse.Warning{Field: fmt.Sprintf("config.services[%d].%s", i, field), Message: message})
	}
	stop := AutostopOf(list)
	started, reached := false, false
	for i := range list {
		s := &list[i]
		if s.Protocol == ProtocolUDP {
			warn(i, "protocol", "no proxy serves udp: it is kept and given back, not acted on")
		}
		if stop == AutostopOff && s.Autostop != AutostopOff {
			warn(i, "autostop", "the machine is not stopped when no one uses it: another of its services does not say so")
		}
		reaches := s.Protocol == ProtocolTCP && len(s.Ports) > 0
		reached = reached || reaches
		started = started || reaches && s.Autostart
	}
	switch {
	case stop == AutostopOff:
	case c.Task != nil:
		warn(0, "autostop", "a machine that is warm for a task is not stopped")
	case !reached:
		warn(0, "ports", "no service has any: the machine is stopped when it does not keep itself awake, and no request starts it again")
	case !started:
		warn(0, "autostart", "the machine is stopped when no one uses it, and no request starts it again: autostart is false in every service with ports")
	}
	return out
}

// onePort reports CodeInvalid for services of a host's program that name two ports.
// It has one port of the host, its $PORT, whatever number its service names.
func onePort(list []Service) error {
	named := 0
	for i, s := range list {
		switch {
		case s.Protocol != ProtocolTCP || s.InternalPort == 0:
		case named != 0 && named != s.InternalPort:
			return invalid("invalid config.services[%d].internal_port %d: a machine of image host serves at its $PORT alone, "+
				"which another service calls %d already: name one port, or use another image", i, s.InternalPort, named)
		default:
			named = s.InternalPort
		}
	}
	return nil
}
