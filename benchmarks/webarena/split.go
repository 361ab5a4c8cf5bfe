package webarena

// split returns the published split of a task, train or test, or "" if its number is in neither.
func (d Dialect) split(id int) string {
	bits := splits[Visual]
	n := 910
	if d != Visual {
		bits, n = splits[WebArena], 812
	}
	if id < 0 || id >= n {
		return ""
	}
	digit := bits[id/4]
	if digit -= '0'; digit > 9 {
		digit -= 'a' - '0' - 10
	}
	if digit>>(3-id%4)&1 == 1 {
		return "train"
	}
	return "test"
}

// splits has one bit per task, the most significant first; 1 means train.
var splits = map[Dialect]string{
	WebArena: "ad0e500d276965e64aba399d174b22dde98e5ba5c06d9ba76fa43aea32bf555ab6964f64b6b2de735a8f287132d34f34535d6a8027cd77693d4cf0fcea6e9d70d8969af23a0b38cd5cda36" +
		"76747e71bc9f3ce34393ee1f5339f961ced439a8672755015b69c",
	Visual: "74675486f11b55965b54984a9c772c72f060f91a0bd31ebb9ee8f2569c3ef22d3dff982d7024ee098a656fb05c7c7187286d666c64d9835d428a536359cb24a4355a1afb2af8b703d09d30" +
		"0f543627bb52494e5b7a2d530974445a1fa739622b16feb117df8412c32fa95dbcf254fb0ed59c",
}

// liteAfter maps tasks of WebArena Lite to the tasks that must precede them.
var liteAfter = map[int][]int{
	77: {65}, 97: {93}, 98: {97}, 117: {96}, 118: {117}, 127: {123}, 157: {131}, 205: {182},
	221: {220}, 259: {258}, 287: {268}, 288: {247}, 369: {367}, 374: {348}, 376: {368}, 382: {381},
	383: {382}, 384: {376}, 387: {386}, 470: {464}, 528: {521}, 538: {505}, 567: {566}, 768: {760},
}
