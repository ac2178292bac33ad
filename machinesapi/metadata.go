package machinesapi

import "github.com/bourse-dev/bourse"

// MetadataPatch is the body of a request that changes several keys. A null or an empty string
// removes a key. Keys that are not listed do not change.
type MetadataPatch struct {
	Metadata map[string]*string `json:"metadata"`
	Version  bourse.InstanceID  `json:"machine_version,omitempty"` // if set, must be the machine's version
}

// MetadataValue is a body that contains the value of one key.
type MetadataValue struct {
	Value string `json:"value"`
}
