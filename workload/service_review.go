package workload

import (
	"fmt"

	"github.com/bourse-dev/bourse"
)

// reviewServices returns warnings about combinations of settings that have a surprising effect, such as a machine that
// is stopped and never started again.
func reviewServices(c *bourse.Config, list []Service) (out []bourse.Warning) {
	warn := func(i int, field, message string) {
		out = append(out, bourse.Warning{Field: fmt.Sprintf("config.services[%d].%s", i, field), Message: message})
	}
	stop := AutostopOf(list)
	started, reached := false, false
	for i := range list {
		s := &list[i]
		if s.Protocol == ProtocolUDP {
			warn(i, "protocol", "proxies do not serve udp: stored and returned, but without effect")
		}
		if stop == AutostopOff && s.Autostop != AutostopOff {
			warn(i, "autostop", "the machine is not stopped when nobody uses it, because autostop is off in another service")
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
		warn(0, "ports", "no service has ports: the machine is stopped unless it keeps itself awake, and no request starts it again")
	case !started:
		warn(0, "autostart", "the machine is stopped when nobody uses it, and no request starts it again: autostart is false in every service with ports")
	}
	return out
}

// checkSinglePort checks the services of a machine whose image is "host". It returns CodeInvalid if they name different
// ports. Such a machine has only one port, its $PORT, regardless of which port its services name.
func checkSinglePort(list []Service) error {
	named := 0
	for i, s := range list {
		switch {
		case s.Protocol != ProtocolTCP || s.InternalPort == 0:
		case named != 0 && named != s.InternalPort:
			return invalid("invalid config.services[%d].internal_port %d: a machine with image host has one port, its $PORT, "+
				"which another service already names as %d: use one port, or another image", i, s.InternalPort, named)
		default:
			named = s.InternalPort
		}
	}
	return nil
}
