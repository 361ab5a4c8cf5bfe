package rng

// A twister is the generator MT19937 by Matsumoto and Nishimura.
type twister struct {
	key [624]uint32
	pos int
}

// seed is init_genrand of the authors' code.
func (t *twister) seed(s uint32) {
	for i := range t.key {
		t.key[i] = s
		s = 1812433253*(s^s>>30) + uint32(i) + 1
	}
	t.pos = len(t.key)
}

// seedArray is init_by_array of the authors' code.
func (t *twister) seedArray(key []uint32) {
	t.seed(19650218)
	k := &t.key
	i, j := 1, 0
	step := func() {
		if i++; i == len(k) {
			k[0], i = k[len(k)-1], 1
		}
	}
	for range max(len(k), len(key)) {
		k[i] = (k[i] ^ (k[i-1]^k[i-1]>>30)*1664525) + key[j] + uint32(j)
		step()
		j = (j + 1) % len(key)
	}
	for range len(k) - 1 {
		k[i] = (k[i] ^ (k[i-1]^k[i-1]>>30)*1566083941) - uint32(i)
		step()
	}
	k[0] = 1 << 31
	t.pos = len(k)
}

func (t *twister) next() uint32 {
	k := &t.key
	if t.pos == len(k) {
		for i := range k {
			y := k[i]&(1<<31) | k[(i+1)%len(k)]&(1<<31-1)
			k[i] = k[(i+397)%len(k)] ^ y>>1 ^ y&1*0x9908b0df
		}
		t.pos = 0
	}
	y := k[t.pos]
	t.pos++
	y ^= y >> 11
	y ^= y << 7 & 0x9d2c5680
	y ^= y << 15 & 0xefc60000
	return y ^ y>>18
}
