package companion

// SocketName is the file that a process listens on, in its directory.
const SocketName = "socket"
