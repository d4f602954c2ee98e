static inline int header(int z) {
	int k[2] = {z, 2};
	if (z > 1 && z < 20)
		k[0]++;
	return k[z & 1];
}
