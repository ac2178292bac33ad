package bourse

// Process is one of a machine's processes, as its host's kernel counts.
type Process struct {
	PID       int64          `json:"pid"`   // as the machine's processes know it
	STime     int64          `json:"stime"` // milliseconds of processor time in the kernel
	RTime     int64          `json:"rtime"` // milliseconds since it began
	CPU       int64          `json:"cpu"`   // milliseconds of processor time, all of it
	RSS       int64          `json:"rss"`   // bytes of memory
	Command   string         `json:"command"`
	Directory string         `json:"directory"`      // it works in; "" when that is not known
	Listens   []ListenSocket `json:"listen_sockets"` // not null
}

// ListenSocket is where a process takes connections, or packets.
type ListenSocket struct {
	Proto   string `json:"proto"`   // "tcp" or "udp"
	Address string `json:"address"` // 0.0.0.0:8080, [::]:8080
}
