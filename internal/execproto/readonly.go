package execproto

// KindReadOnly shows a folder at another path, where nobody can write to it: String from, String
// to → Result. Where process 1 may not mount, it is Unsupported.
const KindReadOnly = 0x3d
